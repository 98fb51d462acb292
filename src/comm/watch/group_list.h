// The groups of a job that are open on this rank.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/watch/collective_log.h"
#include "comm/watch/open_works.h"

namespace accelerate::comm {

// What the peer watch knows of a group.
struct GroupEntry {
  std::string name{};        // the same on all its ranks, and of no other group of the job
  std::vector<int> ranks{};  // of the job
  std::shared_ptr<CollectiveLog> log{};
  std::shared_ptr<OpenWorks> works = std::make_shared<OpenWorks>();

  // The oldest collective of the log that has not ended, as far as the log and the open works know.
  // Asks these, which touches a device: for when something is wrong.
  std::optional<int64_t> oldest_running() const {
    if (!log->oldest_running()) return std::nullopt;
    for (const int64_t number : works->take_over()) log->exchange_has_ended(number);
    return log->oldest_running();
  }
};

// All members may be called from any thread. Groups are few and seldom change.
class GroupList {
 public:
  using Entries = std::vector<std::shared_ptr<const GroupEntry>>;

  void add(std::shared_ptr<const GroupEntry> group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
  }
  void remove(const std::shared_ptr<const GroupEntry>& group) {
    const std::lock_guard lock(mutex_);
    groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
  }
  Entries all() const {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

 private:
  mutable std::mutex mutex_;
  Entries groups_;
};

}  // namespace accelerate::comm
