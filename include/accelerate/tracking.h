// What a program logs: numbers, texts and tensors of any device. See Accelerator::log().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "accelerate/export.h"
#include "accelerate/tracker.h"

namespace accelerate {

class RunTracking;

// A TrackedValue, or a tensor with one element, whose number is read when the device has computed
// it: what is done to the tensor afterwards does not change what is logged.
class LoggedValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor): {"loss", loss}
  LoggedValue(const at::Tensor& tensor) : value_(tensor) {}
  template <class T>
  requires(std::is_constructible_v<TrackedValue, T> &&
           !std::is_same_v<std::remove_cvref_t<T>, LoggedValue>) LoggedValue(T&& value)
      : value_(TrackedValue(std::forward<T>(value))) {}
  // NOLINTEND(google-explicit-constructor)

  const at::Tensor* tensor() const { return std::get_if<at::Tensor>(&value_); }
  const TrackedValue& value() const { return std::get<TrackedValue>(value_); }

 private:
  std::variant<TrackedValue, at::Tensor> value_;
};

// The name must outlive the call, as a literal does.
struct Logged {
  std::string_view name{};
  LoggedValue value{0};
};

// Where a tensor of images has its channels.
enum class ImageLayout {
  kChannelsFirst,  // NCHW, CHW or HW
  kChannelsLast,   // NHWC, HWC or HW
};

struct LoggedImages {
  std::string_view name{};
  // Of uint8, or of floating-point numbers from 0 to 1; 1, 2, 3 or 4 channels. Several images are
  // put into one, eight a row.
  at::Tensor images{};
};

// One of the trackers of a run, or none: on processes that track nothing every call does nothing,
// so that a program need not ask where it runs. A handle; copies are the same tracker. Calls are
// those of Accelerator, for this tracker alone.
class ACCELERATE_EXPORT Tracker {
 public:
  Tracker() = default;
  Tracker(std::shared_ptr<RunTracking> run, int index) : run_(std::move(run)), index_(index) {}

  // "" for none.
  std::string name() const;
  explicit operator bool() const { return run_ != nullptr; }

  void log(std::initializer_list<Logged> values, std::optional<int64_t> step = {}) const {
    log(std::span<const Logged>(values.begin(), values.size()), step);
  }
  void log(std::span<const Logged> values, std::optional<int64_t> step = {}) const;
  void log_images(std::initializer_list<LoggedImages> images, std::optional<int64_t> step = {},
                  ImageLayout layout = ImageLayout::kChannelsFirst) const;
  void log_table(TrackedTable table, std::optional<int64_t> step = {}) const;
  void log_histogram(std::string_view name, const at::Tensor& values,
                     std::optional<int64_t> step = {}) const;
  void log_figure(TrackedFigure figure, std::optional<int64_t> step = {}) const;
  void log_artifact(const std::filesystem::path& path, std::string artifact_path = {}) const;

  // The tracker itself, null for none or for one of another type. The writer's thread calls it too:
  // only what a class of your own makes safe may be called while it tracks.
  template <class T = GeneralTracker>
  T* unwrap() const {
    return dynamic_cast<T*>(tracker());
  }

 private:
  GeneralTracker* tracker() const;

  std::shared_ptr<RunTracking> run_;
  int index_ = -1;  // of all trackers
};

}  // namespace accelerate
