#include "core/ownerless_parameters.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "accelerate/log.h"

namespace accelerate {

const std::vector<at::Tensor>& OwnerlessParameters::parameters(const PreparedModels& models,
                                                               PreparedOptimizers& optimizers) {
  std::vector<const void*> seen;
  for (const auto& [module, strategy] : models) seen.push_back(strategy.get());
  for (const PreparedOptimizer& prepared : optimizers.live()) {
    seen.push_back(&prepared.optimizer());
    for (const auto& group : prepared.optimizer().param_groups()) {
      seen.push_back(group.params().empty() ? nullptr
                                            : group.params().back().unsafeGetTensorImpl());
    }
  }
  if (seen == seen_) return parameters_;
  seen_ = std::move(seen);
  parameters_.clear();
  models_.clear();
  std::unordered_set<const void*> held;
  for (const PreparedOptimizer& prepared : optimizers.live()) {
    for (const at::Tensor& own : prepared.parameters()) held.insert(own.unsafeGetTensorImpl());
  }
  size_t position = 0;
  std::unordered_set<const void*> had_optimizer;
  for (const auto& [module, strategy] : models) {
    Model model{.position = position++};
    const std::vector<at::Tensor> all = module->parameters();
    for (const at::Tensor& parameter : all) {
      if (!held.contains(parameter.unsafeGetTensorImpl())) model.parameters.push_back(parameter);
    }
    // Parameters in pieces have no memory to look at, and nobody can write to them.
    if (strategy->layout().empty()) {
      parameters_.insert(parameters_.end(), model.parameters.begin(), model.parameters.end());
    }
    if (model.parameters.size() < all.size() || had_optimizer_.contains(strategy.get())) {
      had_optimizer.insert(strategy.get());
    } else if (!all.empty()) {
      models_.push_back(std::move(model));
    }
  }
  had_optimizer_ = std::move(had_optimizer);
  return parameters_;
}

void OwnerlessParameters::warn_once(bool is_scaled) {
  if (warned_) return;
  const auto has_gradient = [](const at::Tensor& parameter) { return parameter.grad().defined(); };
  for (const Model& model : models_) {
    if (std::ranges::none_of(model.parameters, has_gradient)) continue;
    warned_ = true;
    log(LogLevel::kWarning,
        "a loss has reached model " + std::to_string(model.position) +
            ", and no prepared optimizer holds its parameters: its gradients are still " +
            (is_scaled ? "multiplied by the scale of the loss" : "being accumulated") +
            ", so give the optimizer that updates it to prepare(); if none does, "
            "freeze the model with requires_grad_(false)");
    return;
  }
}

}  // namespace accelerate
