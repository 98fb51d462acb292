// Options of the strategy that replicates the model and averages gradients (DDP).
#pragma once

#include <cstdint>

#include "accelerate/comm_hook.h"

namespace accelerate {

struct DdpOptions {
  // Size of the buckets in which gradients are averaged while backward still runs.
  double bucket_cap_mb = 25.0;
  // Look, in each backward pass, for parameters that take no part in the loss. Needed where the
  // graph leaves some out; costs a walk over the graph.
  bool find_unused_parameters = false;
  // Promise that all passes have the same graph: unused parameters are found once. The first pass
  // is averaged even inside no_sync.
  bool static_graph = false;
  // Keep gradients inside the buckets: saves one copy and its memory. Do not detach or replace
  // .grad() then.
  bool gradient_as_bucket_view = false;
  // Take the buffers (running statistics) of rank 0 before each forward pass.
  bool broadcast_buffers = true;
  // Compress gradients when the ranks exchange them.
  CommHookOptions comm_hook{};
  // Detect ranks that diverge. A backward pass that did not go through Accelerator::backward()
  // is a UsageError at the next forward pass, batch of a prepared loader or save_state(); at the
  // end of a pass over the data in training and in save_state() parameters are compared across
  // ranks by a few sums, and a UsageError names those that differ.
  bool check_replicas = true;
  // Compare parameters and optimizer state over the ranks whenever the first prepared optimizer has
  // made this many updates: in the backward pass after them, by a sum of the bits of each value. A
  // single flipped bit changes it, elements that changed places do not. A difference is a
  // UsageError on all ranks. It names the value, and the rank that differs where more than half of
  // the ranks agree. 0: never. Needs check_replicas, and does nothing in a join or in LocalSgd, nor
  // after them, since optimizer state may differ then, nor for flat or sharded models.
  int64_t check_replicas_every = 0;

  friend bool operator==(const DdpOptions&, const DdpOptions&) = default;
};

}  // namespace accelerate
