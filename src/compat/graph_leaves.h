// What a backward pass leaves gradients in.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accelerate::compat {

// The tensors to whose .grad() a backward pass from `loss` would add, each once, but for what a
// node runs in a pass of its own.
std::vector<at::Tensor> leaves_of(const at::Tensor& loss);

}  // namespace accelerate::compat
