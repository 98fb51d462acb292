// The groups of a job that are open on this rank.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/watch/collective_log.h"

namespace accelerate::comm {

// What the peer watch knows of a group.
struct GroupEntry {
  std::string name{};        // the same on all its ranks, and of no other group of the job
  std::vector<int> ranks{};  // of the job
  std::shared_ptr<CollectiveLog> log{};
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
