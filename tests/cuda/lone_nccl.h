// NCCL and Gloo at world size 1, for tests of what they do to tensors.
#pragma once

#include <chrono>
#include <memory>

#include "accelerate/process_state.h"
#include "base/events.h"
#include "comm/groups/process_group.h"
#include "comm/rendezvous/rendezvous.h"
#include "support/ranks.h"

namespace accelerate::test {

struct LoneNccl {
  const ProcessState state = ProcessState::from_environment();
  const comm::Meeting meeting = comm::meet(state.ranks(), kUnreachedTimeout);
  comm::Alarm alarm;
  const comm::GroupBackends backends =
      comm::open_backends(meeting.store, state, {.timeout = std::chrono::minutes(2)}, alarm,
                          std::make_shared<comm::CollectiveLog>(std::make_shared<EventStream>()));
  const c10::intrusive_ptr<c10d::ProcessGroup> group = backends.make_process_group(
      meeting.store, {.rank = state.rank(), .world_size = state.world_size()});
};

}  // namespace accelerate::test
