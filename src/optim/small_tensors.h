// Arithmetic on tensors that are so small that torch would spend more time on calling its kernels
// than in them, and would not use a second thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace accelerate {

// Whether the functions below take it: float32 or float64 in dense memory of the CPU, of fewer
// elements than torch gives to a thread.
bool is_small_on_cpu(const at::Tensor& tensor);

double sum_of_squares(const at::Tensor& small);

// Multiplies in place, rounded as torch does for a factor of the tensor's own type.
void scale_in_place(const at::Tensor& small, double factor);

}  // namespace accelerate
