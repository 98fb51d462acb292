#include "accelerate/detail/open_passes.h"

#include <algorithm>

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

}  // namespace accelerate::detail
