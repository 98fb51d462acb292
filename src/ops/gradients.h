// What the backward passes of the fused operations share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "accelerate/ops.h"
#include "device/cuda_kernels.h"

namespace accelerate::ops {

using device::kernels_for;
// The same where they also take rows like those of `tensor`, with weights of dtype `weights`.
const device::CudaKernels* row_kernels_for(const at::Tensor& tensor, at::ScalarType weights);

// `tensor` as kernels read it: dense, and at an address where 16-byte accesses may begin. The
// tensor itself where it is so. Differentiable.
at::Tensor for_kernels(const at::Tensor& tensor);

// Throws UsageError unless `row` is a vector that is as long as the rows of `values` and on the
// same device: kernels do not look. Undefined rows pass.
void require_row(const at::Tensor& row, const at::Tensor& values, const char* name,
                 const char* where);
// Throws UsageError unless both are on one device. Undefined tensors pass.
void require_same_device(const at::Tensor& tensor, const at::Tensor& other, const char* name,
                         const char* where);

// As torch::autograd::Function takes tensors that may be missing.
inline std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

// Whether autograd will want a gradient of `tensor`.
bool wants_gradient(const at::Tensor& tensor);

// A kernel writes to `tensor`, which libtorch does not see: counts it, for those who track
// gradients by their version.
void note_write(const at::Tensor& tensor);

// The dense float32 gradient of a leaf in half precision, to which a backward pass adds by itself;
// undefined for all other tensors.
at::Tensor float_gradient_of(const at::Tensor& parameter);

// How the sum over rows that is the gradient of `parameter` is to be delivered.
device::ColumnSum gradient_sum_of(const at::Tensor& parameter);

// left right + bias, where `bias` may be undefined. The way of products of half precision on CUDA
// is measured where ACCELERATE_TUNE_PRODUCTS says so.
at::Tensor product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = {});
void product_into(at::Tensor& to, const at::Tensor& left, const at::Tensor& right);

// The gradient left^T right of `parameter`: returned in its dtype, or added to its float32 gradient
// and nothing returned.
at::Tensor product_gradient(const at::Tensor& parameter, const at::Tensor& left,
                            const at::Tensor& right);
// The gradient of a weight whose product with `rows` has the gradient `grad`, delivered like that.
inline at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& rows,
                                  const at::Tensor& grad, WeightLayout layout) {
  return layout == WeightLayout::kOutputsFirst ? product_gradient(weight, grad, rows)
                                               : product_gradient(weight, rows, grad);
}
// The weight as [outputs, inputs], without a copy.
inline at::Tensor outputs_first(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::kOutputsFirst ? weight : weight.t();
}
// to += left^T right, where `to` is float32 or float64 and the others may be narrower.
void add_product(at::Tensor& to, const at::Tensor& left, const at::Tensor& right);
// to = left^T right, for the same.
void set_product(at::Tensor& to, const at::Tensor& left, const at::Tensor& right);

// `gradient` of `parameter` in float32: as product_gradient delivers it.
at::Tensor delivered(const at::Tensor& parameter, const at::Tensor& gradient);

// `tensor` in the dtype of autocast, where that is on for its device. Differentiable.
at::Tensor autocast_value(const at::Tensor& tensor);

}  // namespace accelerate::ops
