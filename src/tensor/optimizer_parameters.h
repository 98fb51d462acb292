// What an optimizer updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// Of all groups, in their order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

// Whether any of them has a gradient.
bool has_gradients(const torch::optim::Optimizer& optimizer);

}  // namespace accelerate
