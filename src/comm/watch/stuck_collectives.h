// Collectives that cannot succeed, because a rank that they need has gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "comm/watch/group_list.h"
#include "comm/watch/lifelines.h"

namespace accelerate::comm {

// A collective.
struct Place {
  std::shared_ptr<const GroupEntry> group{};
  int64_t sequence = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// Searches all groups of the job. One thread.
class StuckCollectives {
 public:
  // A collective may go on for `grace` after a rank has gone: what that one sent may still be on
  // its way. A lifeline that breaks though both its ends live is made again in less time.
  StuckCollectives(std::shared_ptr<const GroupList> groups, Lifelines& lifelines,
                   std::chrono::milliseconds grace)
      : groups_(std::move(groups)), lifelines_(lifelines), grace_(grace) {}

  // One that has run for the grace after a rank of its group has gone. Looks at the lifelines.
  std::optional<Place> find();

  // Whether one runs in a group of which a rank has gone, as of the last find(): look again soon.
  bool is_any_doomed() const { return doomed_.has_value(); }

  // Whether a group that rank 0 is in has waited for it for the grace. For when it has left.
  bool rank_zero_is_missed();

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<Place> find_doomed() const;

  const std::shared_ptr<const GroupList> groups_;
  Lifelines& lifelines_;
  const std::chrono::milliseconds grace_;
  std::optional<Place> doomed_;  // runs though a rank has gone
  Clock::time_point doomed_since_;
  std::optional<Clock::time_point> missed_since_;
};

}  // namespace accelerate::comm
