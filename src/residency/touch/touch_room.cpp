#include "residency/touch/touch_room.h"

#include <algorithm>
#include <utility>

namespace accelerate::residency {

void TouchRoom::note_boundary() {
  if (needed_ > 0) needed_before_ = std::exchange(needed_, 0);
}

void TouchRoom::note_touch(std::span<const size_t> touched, std::span<const size_t> expected) {
  std::vector<size_t> present(touched.begin(), touched.end());
  for (const size_t next : expected.first(std::min(options_.prefetch_units, expected.size()))) {
    if (std::ranges::find(present, next) == present.end()) present.push_back(next);
  }
  present_ = 0;
  for (const size_t unit : present) present_ += numels_[unit];
  needed_ = std::max(needed_, present_);
}

bool TouchRoom::has_room(int64_t numel, int64_t own) const {
  const int64_t limit = options_.max_whole_numel;
  if (limit > 0 && numel + own > limit) return false;
  return 2 * (numel + own) < (own >= present_ ? 4 : 3) * std::max(needed_, needed_before_);
}

std::vector<bool> TouchRoom::staying(std::span<const size_t> touched,
                                     std::span<const size_t> expected,
                                     const std::vector<bool>& is_whole) const {
  std::vector<bool> stays(numels_.size());
  int64_t numel = 0;
  for (const size_t unit : touched) {
    stays[unit] = true;
    numel += numels_[unit];
  }
  int64_t between = 0;
  size_t steps = 0;
  for (const size_t unit : expected.first(std::min(horizon(), expected.size()))) {
    ++steps;
    const bool is_near = steps <= options_.prefetch_units ||
                         (options_.keep_within_numel > 0 && between <= options_.keep_within_numel);
    if (!stays[unit] && (is_near || (is_whole[unit] && has_room(numel, numels_[unit])))) {
      stays[unit] = true;
      numel += numels_[unit];
    }
    between += numels_[unit];
  }
  return stays;
}

}  // namespace accelerate::residency
