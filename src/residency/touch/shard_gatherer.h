// How the shards of a unit come together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>

namespace accelerate::residency {

struct GatherCall {
  size_t unit = 0;
  const std::string& name;  // of the unit
  at::Tensor whole;         // contiguous, world_size times as long as `shard`; is filled
  at::Tensor shard;         // of this rank
};

// Calls come one at a time, from whichever thread touches a parameter, and in the same order on all
// ranks that do the same.
class ShardGatherer {
 public:
  virtual ~ShardGatherer() = default;
  // Begins; what it returns waits for the end, once, maybe on another thread, in any order. For
  // device tensors that only orders the current stream. Both keep the tensors. Collective.
  virtual std::function<void()> begin(const GatherCall& call) = 0;
  // Overwrites `whole` with that of `rank`. Collective.
  virtual void broadcast(at::Tensor whole, int rank) = 0;
};

}  // namespace accelerate::residency
