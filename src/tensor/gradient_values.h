// The gradients of many parameters, as operators on lists of tensors take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accelerate {

// The gradients of `parameters` in their order, for work in place. Each stands here once: C++
// modules list a parameter that they share once for each owner. Parameters without gradient, and
// gradients without elements, are left out. Of a sparse gradient it is the values, after entries
// that stand twice were added up: the sum is what has a norm and can overflow. Does not wait for
// the device, but for gradients that are sparse.
std::vector<at::Tensor> distinct_gradients(at::TensorList parameters);

// `tensor` at another place, where it is not there already. Waits only where the CPU is about to
// read what comes from another device.
at::Tensor brought_to(const at::TensorOptions& place, const at::Tensor& tensor);

}  // namespace accelerate
