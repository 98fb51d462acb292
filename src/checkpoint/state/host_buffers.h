// Host memory that one copy of a training state leaves to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace accelerate::checkpoint {

// New memory costs more than copying into it, because the kernel clears each page when it is first
// touched. A state is copied again and again with the same tensors in the same order, so the n-th
// tensor gets the memory that the n-th one had. One thread at a time.
class HostBuffers {
 public:
  // From now on memory is given out anew: all tensors of the last round must be gone or out of use.
  void begin_round();
  // A tensor on the CPU without values: the type and shape of `tensor`, its strides where they
  // leave no holes. It keeps its memory alive.
  at::Tensor empty_like(const at::Tensor& tensor);
  // Lets go of what this round did not ask for.
  void end_round();

 private:
  std::vector<at::Tensor> buffers_;  // of bytes
  size_t used_ = 0;
};

}  // namespace accelerate::checkpoint
