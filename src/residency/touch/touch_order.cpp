#include "residency/touch/touch_order.h"

#include <algorithm>

namespace accelerate::residency {
namespace {

uint64_t pair_key(size_t first, size_t second) {
  return (static_cast<uint64_t>(first) << 32U) ^ (static_cast<uint64_t>(second) & 0xffffffffU);
}

}  // namespace

void TouchOrder::add(size_t unit) { note(unit); }

void TouchOrder::add_boundary() {
  if (!seen_.empty() && seen_.back() != kBoundary) note(kBoundary);
}

void TouchOrder::note(size_t unit) {
  if (seen_.size() == kMostRemembered) forget_oldest();
  const bool as_expected = trail_ != 0 && seen_[trail_] == unit;
  seen_.push_back(unit);
  trail_ = as_expected ? trail_ + 1 : 0;
  if (seen_.size() < 2) return;
  const auto [place, is_new] =
      after_pair_.try_emplace(pair_key(seen_[seen_.size() - 2], unit), seen_.size());
  if (is_new) return;
  if (trail_ == 0) trail_ = place->second;
  place->second = seen_.size();
}

std::optional<size_t> TouchOrder::ahead(size_t steps) const {
  const auto next = expected(steps);
  return next.size() < steps ? std::nullopt : std::optional(next[steps - 1]);
}

std::span<const size_t> TouchOrder::expected(size_t most) const {
  if (trail_ == 0) return {};
  const std::span<const size_t> rest = std::span(seen_).subspan(trail_);
  const auto next = rest.first(std::min(most, rest.size()));
  return next.first(static_cast<size_t>(std::ranges::find(next, kBoundary) - next.begin()));
}

void TouchOrder::forget_oldest() {
  const size_t gone = kMostRemembered / 2;
  seen_.erase(seen_.begin(), seen_.begin() + static_cast<int64_t>(gone));
  trail_ = trail_ > gone ? trail_ - gone : 0;
  std::erase_if(after_pair_, [](const auto& item) { return item.second <= gone; });
  for (auto& item : after_pair_) item.second -= gone;
}

}  // namespace accelerate::residency
