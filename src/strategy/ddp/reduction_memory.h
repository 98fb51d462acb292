// What the exchange of gradients keeps from pass to pass.
#pragma once

#include <string>

#include "accelerate/state_dict.h"

namespace accelerate {

// A ModelStrategy that averages gradients over the ranks is one of these too; for checkpoints.
class ReductionMemory {
 public:
  virtual ~ReductionMemory() = default;

  // Whether gradients travel in the buckets of ModelStrategy::gradient_order() already, or will
  // from the next pass on.
  virtual bool buckets_follow_order() const = 0;
  // After set_gradient_order(): makes the buckets now. Collective. Gradients that are there become
  // part of the buckets, which rounds their mean in another way: call it while there are none.
  virtual void let_buckets_follow_order() = 0;

  // What a communication hook keeps on this rank alone; empty if nothing. Shares the memory of the
  // tensors. On another number of ranks a hook begins anew.
  virtual StateDict hook_state() const = 0;
  // Throws CheckpointError if it is no such state. Returns what of it cannot be taken over, because
  // the hook has other options now; empty if there is nothing. A model whose hook keeps nothing
  // does not ask.
  virtual std::string check_hook_state(const StateDict& state) const = 0;
  // Goes on from there, before the next pass, after the same check.
  virtual void load_hook_state(const StateDict& state) = 0;
};

}  // namespace accelerate
