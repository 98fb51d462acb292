#include "comm/watch/stuck_collectives.h"

#include <algorithm>
#include <vector>

namespace accelerate::comm {

std::optional<Place> StuckCollectives::find() {
  lifelines_.look();
  const std::optional<Place> doomed = find_doomed();
  if (!doomed || doomed != doomed_) {
    doomed_ = doomed;
    doomed_since_ = Clock::now();
    return std::nullopt;
  }
  if (Clock::now() - doomed_since_ < grace_) return std::nullopt;
  return doomed;
}

std::optional<Place> StuckCollectives::find_doomed() const {
  for (const auto& group : groups_->all()) {
    const bool is_broken =
        std::ranges::any_of(group->ranks, [&](int rank) { return lifelines_.is_gone(rank); });
    if (!is_broken) continue;
    if (const auto oldest = group->oldest_running()) {
      return Place{.group = group, .sequence = *oldest};
    }
  }
  return std::nullopt;
}

bool StuckCollectives::rank_zero_is_missed() {
  const auto groups = groups_->all();
  const bool is_missed = std::any_of(groups.begin(), groups.end(), [](const auto& group) {
    const std::vector<int>& ranks = group->ranks;
    return std::find(ranks.begin(), ranks.end(), 0) != ranks.end() && group->oldest_running();
  });
  if (!is_missed) {
    missed_since_.reset();
    return false;
  }
  if (!missed_since_) missed_since_ = Clock::now();
  return Clock::now() - *missed_since_ >= grace_;
}

}  // namespace accelerate::comm
