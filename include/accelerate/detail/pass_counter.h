// Counts forward and backward passes, so that a backward pass that went past the accelerator is
// noticed before its gradients are used.
#pragma once

#include <cstdint>

namespace accelerate::detail {

// Shared by an accelerator, its models and its optimizers. One thread at a time.
struct PassCounter {
  int rank = 0;  // whose passes; for messages
  int world_size = 1;
  // Forward passes with gradients, of models that need Accelerator::backward, since the last one.
  int64_t forwards_since_backward = 0;
  int64_t backwards = 0;
};

}  // namespace accelerate::detail
