// The parameter groups of an optimizer for one of another kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace accelerate {

struct ParameterGroup {
  std::vector<at::Tensor> parameters{};
  // Where they differ from the defaults of the optimizer.
  std::optional<double> lr{};
  std::optional<double> weight_decay{};
};

std::vector<ParameterGroup> groups_of(const torch::optim::Optimizer& optimizer);
// Nothing where options of that kind have none, or are not known.
std::optional<double> weight_decay_of(const torch::optim::OptimizerOptions& options);

}  // namespace accelerate
