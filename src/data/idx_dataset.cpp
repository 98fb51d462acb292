#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/errors.h"
#include "accelerate/idx.h"
#include "data/byte_scaling.h"
#include "data/idx_format.h"
#include "data/row_copy.h"
#include "files/durable/mapped_file.h"

namespace accelerate {
namespace {

void check_idx_options(const IdxOptions& options) {
  if (!options.to_float && (options.mean != 0.0 || options.stddev != 1.0)) {
    throw UsageError({.what = "IdxOptions: mean and stddev have no effect while to_float is off",
                      .hint = "add .to_float = true"});
  }
  if (!(options.stddev > 0)) {
    throw UsageError(
        {.what = "IdxOptions: stddev must be positive, got " + std::to_string(options.stddev)});
  }
}

[[noreturn]] void refuse_idx_dataset(const std::filesystem::path& path, std::string what,
                                     std::string hint) {
  throw DataError({.what = std::move(what), .where = path.string(), .hint = std::move(hint)});
}

// The pixels of an image file, in a mapping of the file or in memory.
struct Images {
  std::shared_ptr<const void> owner;
  const std::byte* pixels = nullptr;
  std::vector<int64_t> shape;
  bool are_bytes = false;
};

bool is_gzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1F} && file[1] == std::byte{0x8B};
}

Images open_images(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path, "the IDX file");
  if (is_gzip(file->bytes())) {
    auto images = std::make_shared<const at::Tensor>(read_idx(path));
    return {.owner = images,
            .pixels = static_cast<const std::byte*>(images->data_ptr()),
            .shape = images->sizes().vec(),
            .are_bytes = images->scalar_type() == at::kByte};
  }
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(file->data()),
                                       file->size());
  IdxHeader header = parse_idx(bytes, path);
  const std::byte* pixels = file->data() + header.magic.header_bytes();
  return {.owner = std::move(file),
          .pixels = pixels,
          .shape = std::move(header.shape),
          .are_bytes = header.magic.type == IdxType::kUint8};
}

at::Tensor read_labels(const std::filesystem::path& path) {
  const at::Tensor labels = read_idx(path);
  if (labels.dim() != 1 || !at::isIntegralType(labels.scalar_type(), false)) {
    refuse_idx_dataset(
        path,
        "the IDX file holds no labels: one integer for each image is needed, it has " +
            std::to_string(labels.dim()) + " dimensions of " + toString(labels.scalar_type()),
        "give the file of the labels as the second one");
  }
  return labels.to(at::kLong);
}

}  // namespace

struct IdxDataset::State {
  Images images;
  at::Tensor labels;
  std::vector<int64_t> image_shape;
  size_t image_bytes = 1;
  std::optional<ByteScaling> scaling;

  at::ScalarType type() const { return scaling ? at::kFloat : at::kByte; }

  // Writes images `indices` one after the other to `out`.
  void copy(c10::ArrayRef<size_t> indices, const at::Tensor& out) const {
    if (!scaling) {
      copy_rows(images.pixels, image_bytes, indices, static_cast<std::byte*>(out.data_ptr()));
      return;
    }
    auto* target = out.data_ptr<float>();
    for (size_t k = 0; k < indices.size(); ++k) {
      if (k + 1 < indices.size()) {
        prefetch_row(images.pixels + indices[k + 1] * image_bytes, image_bytes);
      }
      const std::byte* pixels = images.pixels + indices[k] * image_bytes;
      scaling->apply(reinterpret_cast<const uint8_t*>(pixels), image_bytes, target);
      target += image_bytes;
    }
  }
};

IdxDataset::IdxDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                       const IdxOptions& options) {
  check_idx_options(options);
  auto state = std::make_shared<State>();
  state->images = open_images(images);
  const std::vector<int64_t>& shape = state->images.shape;
  if (!state->images.are_bytes || shape.size() < 2) {
    refuse_idx_dataset(
        images, "the IDX file holds no images: bytes in at least two dimensions are needed",
        "give the file of the images as the first one; read other data with read_idx()");
  }
  state->labels = read_labels(labels);
  if (state->labels.size(0) != shape[0]) {
    refuse_idx_dataset(labels,
                       "there are " + std::to_string(state->labels.size(0)) + " labels for " +
                           std::to_string(shape[0]) + " images",
                       "give two files of the same set; the images are " + images.string());
  }
  if (options.add_channel) state->image_shape.push_back(1);
  state->image_shape.insert(state->image_shape.end(), shape.begin() + 1, shape.end());
  for (const int64_t extent : state->image_shape) {
    state->image_bytes *= static_cast<size_t>(extent);
  }
  if (options.to_float) {
    state->scaling.emplace(static_cast<float>(options.mean), static_cast<float>(options.stddev));
  }
  state_ = std::move(state);
}

size_t IdxDataset::size() const { return static_cast<size_t>(state_->labels.size(0)); }

Sample IdxDataset::get(size_t index) const {
  detail::check_index(index, size());
  const at::Tensor image = at::empty(state_->image_shape, state_->type());
  state_->copy(index, image);
  return {.data = image, .target = state_->labels.select(0, static_cast<int64_t>(index)).clone()};
}

Sample IdxDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, size());
  const at::Tensor images = empty_rows(indices.size(), state_->image_shape, state_->type());
  state_->copy(indices, images);
  return {.data = images, .target = gather_rows(state_->labels, indices)};
}

}  // namespace accelerate
