#include "core/configured/group_overrides.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace accelerate {
namespace {

template <class... Kinds>
std::optional<double> first_weight_decay(const torch::optim::OptimizerOptions& options) {
  std::optional<double> found;
  const auto look = [&](const auto* kind) {
    if (kind != nullptr) found = kind->weight_decay();
  };
  (look(dynamic_cast<const Kinds*>(&options)), ...);
  return found;
}

}  // namespace

std::optional<double> weight_decay_of(const torch::optim::OptimizerOptions& options) {
  namespace optim = torch::optim;
  return first_weight_decay<optim::SGDOptions, optim::AdamOptions, optim::AdamWOptions,
                            optim::AdagradOptions, optim::RMSpropOptions>(options);
}

std::vector<ParameterGroup> groups_of(const torch::optim::Optimizer& optimizer) {
  const double lr = optimizer.defaults().get_lr();
  const std::optional<double> decay = weight_decay_of(optimizer.defaults());
  std::vector<ParameterGroup> groups;
  for (const auto& group : optimizer.param_groups()) {
    ParameterGroup& own = groups.emplace_back();
    own.parameters = group.params();
    if (group.options().get_lr() != lr) own.lr = group.options().get_lr();
    const std::optional<double> own_decay = weight_decay_of(group.options());
    if (own_decay != decay) own.weight_decay = own_decay;
  }
  return groups;
}

}  // namespace accelerate
