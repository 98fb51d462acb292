#include "accelerate/detail/loader_control.h"

#include <utility>

namespace accelerate::detail {

LoaderControl::Start LoaderControl::start() const {
  const std::lock_guard lock(mutex_);
  return {
      .epoch = epoch_, .position = resume_position_, .seed = seed_, .even_batches = even_batches_};
}

int64_t LoaderControl::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

void LoaderControl::set_epoch(int64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (epoch == epoch_) return;
  epoch_ = epoch;
  resume_position_ = 0;
  seen_epoch_ = epoch;
  seen_position_ = 0;
}

void LoaderControl::set_even_batches(std::optional<bool> even) {
  const std::lock_guard lock(mutex_);
  even_batches_ = even;
}

void LoaderControl::delivered(const BatchInfo& info, int64_t position) {
  const std::lock_guard lock(mutex_);
  seen_epoch_ = info.epoch;
  seen_position_ = position;
}

void LoaderControl::finished() {
  const std::lock_guard lock(mutex_);
  ++epoch_;
  resume_position_ = 0;
  seen_epoch_ = epoch_;
  seen_position_ = 0;
}

std::shared_ptr<OpenPasses> LoaderControl::passes() const {
  const std::lock_guard lock(mutex_);
  return passes_;
}

void LoaderControl::set_passes(std::shared_ptr<OpenPasses> passes) {
  const std::lock_guard lock(mutex_);
  passes_ = std::move(passes);
}

LoaderState LoaderControl::state() const {
  const std::lock_guard lock(mutex_);
  return {.seed = seed_.value_or(0), .epoch = seen_epoch_, .position = seen_position_};
}

void LoaderControl::load(const LoaderState& state) {
  const std::lock_guard lock(mutex_);
  epoch_ = state.epoch;
  seed_ = state.seed;
  resume_position_ = state.position;
  seen_epoch_ = state.epoch;
  seen_position_ = state.position;
}

}  // namespace accelerate::detail
