// Tensors of any dtype side by side in one row of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accelerate::comm {

// The elements of `tensor` as bytes; shares its memory if that is contiguous.
at::Tensor to_bytes(const at::Tensor& tensor);

// How many bytes a tensor of the dtype of `sample` and these sizes has.
int64_t count_bytes(const at::Tensor& sample, at::IntArrayRef sizes);

// `bytes` rounded up to where a tensor of any dtype may begin.
int64_t aligned(int64_t bytes);

// A tensor of the dtype of `sample` and these sizes on the bytes of `row` from `offset` on.
at::Tensor view_in(const at::Tensor& row, int64_t offset, const at::Tensor& sample,
                   at::IntArrayRef sizes);

}  // namespace accelerate::comm
