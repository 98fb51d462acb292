// c10d's process groups for the ranks of a job.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "comm/watch/alarm.h"
#include "comm/watch/collective_log.h"
#include "compat/c10d.h"
#include "device/collectives.h"
#include "device/exchange_control.h"

namespace accelerate::comm {

// Where this rank stands in a group.
struct GroupPlace {
  int rank = 0;
  int world_size = 1;
};

// What the ranks of a group exchange tensors through.
class GroupBackends {
 public:
  GroupBackends() = default;
  // `own` is for tensors of `kind`; null: `host` takes them, too.
  GroupBackends(std::unique_ptr<device::Collectives> host, c10::DeviceType kind,
                std::unique_ptr<device::Collectives> own)
      : host_(std::move(host)), kind_(kind), own_(std::move(own)) {}

  device::Collectives& host() const { return *host_; }
  // See device::Collectives::control(). Null where all waits block.
  std::shared_ptr<device::ExchangeControl> control() const {
    return own_ ? own_->control() : nullptr;
  }
  device::Collectives& of(c10::DeviceType kind) const {
    return own_ && kind == kind_ ? *own_ : *host_;
  }
  // For strategies that drive c10d themselves; knows the devices whose collectives are of c10d.
  c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
      const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place) const;

 private:
  std::unique_ptr<device::Collectives> host_;
  c10::DeviceType kind_ = c10::kCPU;
  std::unique_ptr<device::Collectives> own_;
};

// Opens Gloo for CPU tensors and, where `state` has a GPU, NCCL or Gloo for CUDA tensors.
// Collective over the ranks of a group in which this one stands at `place`; unset: all of the job.
// When `alarm` rings, collectives of Gloo that run end with an error and its connections close;
// `log` knows since when one of them has been under way. Those of a device with a control() are for
// a DeviceWatch to follow. `options` has its time-outs set, see with_timeouts(). Throws UsageError
// where NCCL is asked to put two ranks on one GPU, unless GPUs may be shared, and CommError where
// the connections cannot be made.
GroupBackends open_backends(const c10::intrusive_ptr<c10d::Store>& store, const ProcessState& state,
                            const ProcessGroupOptions& options, Alarm& alarm,
                            std::shared_ptr<CollectiveLog> log,
                            const std::optional<GroupPlace>& place = std::nullopt);

// The group under `communicator`, for the strategies that drive c10d themselves. Null at world
// size 1.
c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(Communicator& communicator);

// Throws CommError if the group has failed: after that, what a device holds may follow from
// exchanges that were aborted. Cheap; not collective.
void require_usable(Communicator& communicator);

}  // namespace accelerate::comm
