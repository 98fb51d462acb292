#include "tensor/optimizer_parameters.h"

#include <torch/optim/optimizer.h>

#include <algorithm>

namespace accelerate {

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

bool has_gradients(const torch::optim::Optimizer& optimizer) {
  return std::ranges::any_of(optimizer.param_groups(), [](const auto& group) {
    return std::ranges::any_of(
        group.params(), [](const at::Tensor& parameter) { return parameter.grad().defined(); });
  });
}

}  // namespace accelerate
