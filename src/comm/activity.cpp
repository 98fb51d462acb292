#include "comm/activity.h"

#include "comm/communicator_impl.h"

namespace accelerate::comm {

Activity::Activity(Communicator& communicator, const std::string& activity)
    : communicator_(communicator) {
  communicator_.impl().log().enter(activity);
}

Activity::~Activity() { communicator_.impl().log().leave(); }

}  // namespace accelerate::comm
