// The form in which tensors are handed to Gloo and NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include "accelerate/communicator.h"

namespace accelerate::comm {

// Such as "mean".
const char* name_of(ReduceOp op);

// Whether both Gloo and NCCL can compute with `dtype`.
bool can_be_reduced(at::ScalarType dtype);

// The elements of `tensor` in one row, as bytes where the backends do not know its type: enough to
// move them. Shares the memory of `tensor` if that is contiguous.
at::Tensor to_wire(const at::Tensor& tensor);

// A row that to_wire() made of one tensor like `sample`, or of `copies` of them, back in its dtype
// and shape; with `copies` as the first dimension. Shares the memory of `row`.
at::Tensor from_wire(const at::Tensor& row, const at::Tensor& sample);
at::Tensor from_wire(const at::Tensor& row, const at::Tensor& sample, int64_t copies);

}  // namespace accelerate::comm
