#include "accelerate/detail/open_passes.h"

#include <algorithm>
#include <utility>

namespace accelerate::detail {

std::optional<BatchInfo> OpenPasses::current() const {
  const std::lock_guard lock(mutex_);
  return open_.empty() ? std::nullopt : open_.back().batch;
}

int64_t OpenPasses::begin() {
  const std::lock_guard lock(mutex_);
  open_.push_back({.number = begun_});
  return begun_++;
}

void OpenPasses::deliver(int64_t number, const BatchInfo& batch) {
  const std::lock_guard lock(mutex_);
  const auto pass = std::ranges::find(open_, number, &Entry::number);
  if (pass != open_.end()) pass->batch = batch;
}

void OpenPasses::end(int64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Entry& entry) { return entry.number == number; });
}

void OpenPasses::set_before_pass(std::function<void()> call) {
  const std::lock_guard lock(before_pass_mutex_);
  before_pass_ = std::move(call);
}

void OpenPasses::before_pass() const {
  const std::lock_guard lock(before_pass_mutex_);
  if (before_pass_) before_pass_();
}

}  // namespace accelerate::detail
