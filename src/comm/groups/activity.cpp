#include "comm/groups/activity.h"

#include "comm/groups/communicator_impl.h"

namespace accelerate::comm {

Activity::Activity(Communicator& communicator, const std::string& activity)
    : communicator_(communicator) {
  impl_of(communicator_).log().enter(activity);
}

Activity::~Activity() { impl_of(communicator_).log().leave(); }

std::shared_ptr<EventStream> events_of(Communicator& communicator) {
  return impl_of(communicator).job().events;
}

std::unique_ptr<Communicator> open_beside(Communicator& communicator,
                                          const ProcessGroupOptions& options) {
  const Job& job = impl_of(communicator).job();
  return CommunicatorAccess::make(
      std::make_shared<Communicator::Impl>(job.state, options, job.events));
}

}  // namespace accelerate::comm
