// Equality of tensors as values of a saved state.
#pragma once

#include <ATen/core/Tensor.h>

namespace accelerate {

// Equal dtype, shape and bits, on whatever devices; two undefined tensors are equal. Unlike
// at::equal a NaN equals a NaN of the same bits, and 0.0 does not equal -0.0. Waits for the
// devices.
bool same_bits(const at::Tensor& left, const at::Tensor& right);

}  // namespace accelerate
