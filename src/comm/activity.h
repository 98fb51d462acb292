// Collectives under the name of what the user called.
#pragma once

#include <string>

#include "accelerate/communicator.h"

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

}  // namespace accelerate::comm
