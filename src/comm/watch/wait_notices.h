// Says what this rank waits for, where that takes long.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/events.h"
#include "comm/watch/group_list.h"

namespace accelerate::comm {

// Reads the board of the stream. One thread.
class WaitNotices {
 public:
  static constexpr std::chrono::seconds kFirstNotice{10};
  // The next notice comes when the wait is this many times as long.
  static constexpr int kNoticeFactor = 6;

  // `events` is the stream in which the logs of `groups` write.
  WaitNotices(std::shared_ptr<const GroupList> groups, std::shared_ptr<const EventStream> events)
      : groups_(std::move(groups)), events_(std::move(events)) {}

  // Logs what has been waited for for the longest time, if a notice of it is due.
  void look();

 private:
  const std::shared_ptr<const GroupList> groups_;
  const std::shared_ptr<const EventStream> events_;
  int64_t since_ = 0;  // time of the oldest wait as of the last look; 0: there was none
  std::chrono::seconds next_notice_ = kFirstNotice;  // of that wait
};

}  // namespace accelerate::comm
