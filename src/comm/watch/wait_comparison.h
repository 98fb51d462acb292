// Finds ranks that wait for each other in different operations.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/events.h"
#include "comm/watch/diagnosis.h"
#include "comm/watch/group_list.h"
#include "comm/watch/watch_store.h"

namespace accelerate::comm {

// The first rank that waits long in an exchange leaves in the store what it means by it; the others
// that come to wait long in the same exchange compare. That is one question a rank and exchange,
// whatever the number of ranks, and none while nobody waits. Texts are not compared: they say what
// the user called, which may differ where ranks have different parts. The thread of the store.
//
// Exchanges of the host and those of a device are counted apart. A rank whose device waits and one
// whose host waits, in collectives of one number, compare how far they are in the others' count: if
// neither has begun what the other waits in, they have made their calls in different orders.
class WaitComparison {
 public:
  // `events` is the stream in which the logs of `groups` write.
  WaitComparison(std::shared_ptr<const GroupList> groups, std::shared_ptr<const EventStream> events,
                 WatchStore& store, int rank, int world_size)
      : groups_(std::move(groups)),
        events_(std::move(events)),
        store_(store),
        rank_(rank),
        world_size_(world_size) {}

  // Compares exchanges that have been under way for `time`, each of them once. What is wrong, if
  // another rank waits in one of them and means another operation. Throws as the store does.
  std::optional<Diagnosis> look(std::chrono::milliseconds time);

 private:
  std::optional<Diagnosis> compare(const GroupEntry& group, const Event& wait,
                                   const std::string& key);
  std::optional<Diagnosis> compare_host_and_device(const GroupEntry& group, const Event& wait);

  const std::shared_ptr<const GroupList> groups_;
  const std::shared_ptr<const EventStream> events_;
  WatchStore& store_;
  const int rank_;
  const int world_size_;
  std::set<std::string> compared_;  // keys of exchanges that are still under way
  // Keys under which this rank has left something, by those of their exchanges.
  std::map<std::string, std::vector<std::string>> left_;
};

}  // namespace accelerate::comm
