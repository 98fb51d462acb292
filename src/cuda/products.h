// Matrix products whose way was chosen by measurement.
#pragma once

#include <ATen/core/Tensor.h>

namespace accelerate::cuda {

// to = left right + bias, or to += left right, by cuBLASLt. All are matrices on one device with one
// of their strides 1, `to` is dense, left and right are of one 16-bit type, `to` of that type or
// float32; `bias` has that of left and may be undefined. The first call for a shape tries the ways
// that cuBLASLt has on memory of its own, waits for the device and keeps the fastest; inside of a
// graph it takes the one that cuBLASLt thinks best. False, and nothing is done, where the matrices
// are not so.
bool measured_product(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
                      const at::Tensor& bias, bool add);

}  // namespace accelerate::cuda
