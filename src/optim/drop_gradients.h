// Throws gradients away.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// Of all groups, in their order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

// What zero_grad() of torch does, where nothing is recorded; gradients that graphs remember keep
// their memory (device::KeptGradients).
void drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none);

}  // namespace accelerate
