// What a communication hook keeps from pass to pass.
#pragma once

#include "accelerate/state_dict.h"

namespace accelerate {

// A ModelStrategy whose hook has a memory is one of these too. Of this rank alone: on another
// number of ranks a hook begins anew.
class HookMemory {
 public:
  virtual ~HookMemory() = default;
  // Shares the memory of the tensors; empty if the hook keeps nothing.
  virtual StateDict hook_state() const = 0;
  // Goes on from there, before the next pass. Throws CheckpointError, and changes nothing, if it is
  // no such state.
  virtual void load_hook_state(const StateDict& state) = 0;
};

}  // namespace accelerate
