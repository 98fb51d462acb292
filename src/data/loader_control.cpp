#include "accelerate/detail/loader_control.h"

#include <algorithm>
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
  left_.reset();
}

void LoaderControl::set_even_batches(std::optional<bool> even) {
  const std::lock_guard lock(mutex_);
  even_batches_ = even;
}

std::shared_ptr<OpenPasses> LoaderControl::passes() const {
  const std::lock_guard lock(mutex_);
  return passes_;
}

void LoaderControl::set_passes(std::shared_ptr<OpenPasses> passes) {
  const std::lock_guard lock(mutex_);
  passes_ = std::move(passes);
}

std::vector<LoaderControl::OpenPlace>::iterator LoaderControl::find(int64_t pass) {
  return std::ranges::find(open_, pass, &OpenPlace::pass);
}

int64_t LoaderControl::begin(const Place& place) {
  const std::lock_guard lock(mutex_);
  left_.reset();
  open_.push_back({.pass = begun_, .place = place});
  return begun_++;
}

void LoaderControl::delivered(int64_t pass, int64_t position) {
  const std::lock_guard lock(mutex_);
  const auto found = find(pass);
  if (found != open_.end()) found->place.position = position;
}

void LoaderControl::finished(int64_t pass) {
  const std::lock_guard lock(mutex_);
  const auto found = find(pass);
  if (found == open_.end()) return;
  const int64_t next = found->place.epoch + 1;
  open_.erase(found);
  if (epoch_ >= next) return;
  epoch_ = next;
  resume_position_ = 0;
}

void LoaderControl::left(int64_t pass) {
  const std::lock_guard lock(mutex_);
  const auto found = find(pass);
  if (found == open_.end()) return;
  left_ = found->place;
  open_.erase(found);
}

std::optional<LoaderControl::Place> LoaderControl::place() const {
  const std::lock_guard lock(mutex_);
  return open_.empty() ? left_ : open_.back().place;
}

void LoaderControl::load(const LoaderState& state) {
  const std::lock_guard lock(mutex_);
  epoch_ = state.epoch;
  seed_ = state.seed;
  resume_position_ = state.position;
  open_.clear();  // loops that still run no longer count
  left_.reset();
}

}  // namespace accelerate::detail
