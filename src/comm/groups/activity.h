// Collectives under the name of what the user called.
#pragma once

#include <memory>
#include <string>

#include "accelerate/communicator.h"
#include "base/events.h"

namespace accelerate::comm {

// While it lives, errors and notices of this rank name the collectives of `communicator` by
// `activity`: "wait_for_everyone", "loader: next batch from rank 0". Of several inside each other
// the outermost counts. Made and destroyed by one thread.
class [[nodiscard]] Activity {
 public:
  Activity(Communicator& communicator, const std::string& activity);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  Communicator& communicator_;
};

// What this rank does: one stream for `communicator`, the groups that were split off it and those
// that were opened beside it.
std::shared_ptr<EventStream> events_of(Communicator& communicator);

// A group of the same ranks with connections, an alarm and a watch of its own, for a thread beside
// the training: it may fail alone. Collective over the ranks of the job.
std::unique_ptr<Communicator> open_beside(Communicator& communicator,
                                          const ProcessGroupOptions& options);

}  // namespace accelerate::comm
