#include "comm/activity.h"

#include "comm/communicator_impl.h"

namespace accelerate::comm {

Activity::Activity(Communicator& communicator, const std::string& activity)
    : communicator_(communicator) {
  impl_of(communicator_).log().enter(activity);
}

Activity::~Activity() { impl_of(communicator_).log().leave(); }

}  // namespace accelerate::comm
