// c10d's process groups for the ranks of a job.
#pragma once

#include <memory>
#include <optional>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "comm/alarm.h"
#include "comm/collective_log.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// Where this rank stands in a group.
struct GroupPlace {
  int rank = 0;
  int world_size = 1;
};

// Opens Gloo for CPU tensors and, where `state` has a GPU, NCCL or Gloo for CUDA tensors.
// Collective over the ranks of a group in which this one stands at `place`; unset: all of the job.
// When `alarm` rings, collectives of Gloo that run end with an error and its connections close;
// `log` knows since when one of them has been under way. `options` has its time-outs set, see
// with_timeouts(). Throws UsageError where NCCL is asked to put two ranks on one GPU, CommError
// where the connections cannot be made.
c10::intrusive_ptr<c10d::ProcessGroup> open_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessState& state,
    const ProcessGroupOptions& options, Alarm& alarm, std::shared_ptr<CollectiveLog> log,
    const std::optional<GroupPlace>& place = std::nullopt);

// The group under `communicator`, for the strategies that drive c10d themselves. Null at world
// size 1.
c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(Communicator& communicator);

}  // namespace accelerate::comm
