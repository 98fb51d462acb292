#include "core/tracking/tracked_tensors.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "accelerate/errors.h"
#include "device/tensor_copy.h"
#include "tracking/histogram.h"

namespace accelerate {
namespace {

UsageError bad_tensor(const at::Tensor& tensor, std::string_view name, const char* where,
                      const std::string& hint) {
  std::ostringstream text;
  text << '"' << name << "\" is ";
  if (tensor.defined()) {
    text << "a tensor of " << tensor.scalar_type() << ' ' << tensor.sizes();
  } else {
    text << "an undefined tensor";
  }
  return UsageError({.what = text.str(), .where = where, .hint = hint});
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized();
}

// Of the only element, on the host.
std::optional<double> read_number(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return *static_cast<const float*>(data);
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kHalf:
      return *static_cast<const at::Half*>(data);
    case at::kBFloat16:
      return *static_cast<const at::BFloat16*>(data);
    case at::kLong:
      return static_cast<double>(*static_cast<const int64_t*>(data));
    case at::kInt:
      return *static_cast<const int32_t*>(data);
    case at::kShort:
      return *static_cast<const int16_t*>(data);
    case at::kChar:
      return *static_cast<const int8_t*>(data);
    case at::kByte:
      return *static_cast<const uint8_t*>(data);
    case at::kBool:
      return *static_cast<const bool*>(data) ? 1.0 : 0.0;
    default:
      return std::nullopt;
  }
}

bool is_readable(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
    case at::kBool:
      return true;
    default:
      return false;
  }
}

class DeviceNumbers : public tracking::PendingNumbers {
 public:
  explicit DeviceNumbers(const std::vector<at::Tensor>& tensors) : copies_(tensors) {}
  bool ready() const override { return copies_.ready(); }
  std::vector<double> get() const override {
    std::vector<double> numbers;
    for (const at::Tensor& copy : copies_.tensors()) numbers.push_back(*read_number(copy));
    return numbers;
  }

 private:
  device::TensorCopies copies_;
};

// A tensor of bytes, N x C x H x W, as one picture of eight images a row.
TrackedImage picture_of(std::string name, const at::Tensor& bytes) {
  constexpr int64_t kColumns = 8;
  const int64_t count = bytes.size(0);
  const int64_t channels = bytes.size(1);
  const int64_t height = bytes.size(2);
  const int64_t width = bytes.size(3);
  const int64_t columns = std::min(count, kColumns);
  const int64_t rows = (count + columns - 1) / columns;
  TrackedImage image{.name = std::move(name),
                     .height = rows * height,
                     .width = columns * width,
                     .channels = static_cast<int>(channels)};
  image.pixels.resize(static_cast<size_t>(image.height * image.width * channels));
  const auto* from = static_cast<const uint8_t*>(bytes.const_data_ptr());
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t y = 0; y < height; ++y) {
        const int64_t row = i / columns * height + y;
        const int64_t begin = (row * image.width + i % columns * width) * channels + channel;
        for (int64_t x = 0; x < width; ++x) {
          image.pixels[static_cast<size_t>(begin + x * channels)] = *from++;
        }
      }
    }
  }
  return image;
}

class DeviceImages : public tracking::PendingAttachment {
 public:
  DeviceImages(std::vector<std::string> names, const std::vector<at::Tensor>& bytes)
      : names_(std::move(names)), copies_(bytes) {}
  bool ready() const override { return copies_.ready(); }
  tracking::Attachment get() const override {
    std::vector<TrackedImage> images;
    for (size_t i = 0; i < names_.size(); ++i) {
      images.push_back(picture_of(names_[i], copies_.tensors()[i]));
    }
    return {.content = std::move(images)};
  }

 private:
  std::vector<std::string> names_;
  device::TensorCopies copies_;
};

class DeviceHistogram : public tracking::PendingAttachment {
 public:
  DeviceHistogram(std::string_view name, const at::Tensor& values)
      : name_(name), copies_({values}) {}
  bool ready() const override { return copies_.ready(); }
  tracking::Attachment get() const override {
    const at::Tensor& copy = copies_.tensors()[0];
    const auto* from = static_cast<const float*>(copy.const_data_ptr());
    const std::vector<double> values(from, from + copy.numel());
    return {.content = tracking::histogram_of(name_, values)};
  }

 private:
  std::string name_;
  device::TensorCopies copies_;
};

// N x C x H x W, of bytes.
at::Tensor bytes_of_images(const LoggedImages& logged, ImageLayout layout) {
  constexpr const char* kHint =
      "give images of uint8, or of floating-point numbers from 0 to 1, as NCHW, CHW or HW (or "
      "NHWC, "
      "HWC with ImageLayout::kChannelsLast) with 1 to 4 channels";
  at::Tensor images = logged.images;
  const auto refuse = [&] { return bad_tensor(logged.images, logged.name, "log_images", kHint); };
  if (!is_plain(images) || images.dim() < 2 || images.dim() > 4) throw refuse();
  if (images.scalar_type() != at::kByte && !images.is_floating_point()) throw refuse();
  const bool channels_last = layout == ImageLayout::kChannelsLast;
  if (images.dim() == 2) images = images.unsqueeze(channels_last ? -1 : 0);
  if (images.dim() == 3) images = images.unsqueeze(0);
  if (channels_last) images = images.permute({0, 3, 1, 2});
  if (images.numel() == 0 || images.size(1) > 4) throw refuse();
  if (images.scalar_type() == at::kByte) return images;
  return images.to(at::kFloat).mul(255).nan_to_num(0).clamp(0, 255).to(at::kByte);
}

}  // namespace

std::optional<double> number_on_host(const at::Tensor& tensor, std::string_view name) {
  if (!is_plain(tensor) || tensor.numel() != 1 || !is_readable(tensor.scalar_type())) {
    throw bad_tensor(tensor, name, "log",
                     "log tensors with one number, for example tensor.mean(), or use "
                     "log_histogram()");
  }
  if (!tensor.is_cpu()) return std::nullopt;
  return read_number(tensor);
}

std::shared_ptr<const tracking::PendingNumbers> numbers_of(const std::vector<at::Tensor>& tensors) {
  return std::make_shared<const DeviceNumbers>(tensors);
}

TrackedTensors images_of(std::initializer_list<LoggedImages> images, ImageLayout layout) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<at::Tensor> bytes;
  size_t total = 0;
  for (const LoggedImages& logged : images) {
    names.emplace_back(logged.name);
    bytes.push_back(bytes_of_images(logged, layout));
    total += static_cast<size_t>(bytes.back().numel());
  }
  return {.attachment = std::make_shared<const DeviceImages>(std::move(names), bytes),
          .bytes = total};
}

TrackedTensors histogram_of_tensor(std::string_view name, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (!is_plain(values) || !is_readable(values.scalar_type())) {
    throw bad_tensor(values, name, "log_histogram", "log a dense tensor of real numbers");
  }
  return {.attachment = std::make_shared<const DeviceHistogram>(name, values.to(at::kFloat)),
          .bytes = static_cast<size_t>(values.numel()) * sizeof(float)};
}

}  // namespace accelerate
