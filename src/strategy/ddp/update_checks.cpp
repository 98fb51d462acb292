#include "strategy/flat/rank_checks.h"

#include <string>

namespace accelerate {

void RankChecks::note_parameters(const std::vector<at::Tensor>& parameters) {
  if (!loose_ || parameters.size() == loose_->known()) return;
  std::vector<const torch::nn::Module*> modules;
  for (const auto& model : models_()) modules.push_back(&model->module());
  loose_->update(parameters, modules);
}

void RankChecks::before_update(const std::vector<at::Tensor>& parameters) {
  const auto models = models_();
  for (const auto& model : models) model->require_synchronised(parameters);
  if (!loose_) return;
  note_parameters(parameters);
  loose_->before_step();
  require_same_assigned(models, parameters);
}

// Gradients that no pass since the last update has averaged.
void RankChecks::require_same_assigned(const std::vector<std::shared_ptr<FlatModel>>& models,
                                       const std::vector<at::Tensor>& parameters) {
  NamedValues assigned;
  for (const auto& model : models) {
    const int64_t passes = model->reduced_passes();
    const bool is_reduced = std::exchange(reduced_[model.get()], passes) != passes;
    if (is_reduced || loose_->compared_assigned() || !model->is_replicated()) continue;
    size_t index = 0;
    for (const at::Tensor& parameter : parameters) {
      const std::string name = "parameter " + std::to_string(index++);
      if (parameter.grad().defined() && model->unit()->find(parameter)) {
        assigned.emplace_back(name, parameter.grad());
      }
    }
  }
  loose_->require_same_assigned(assigned);
}

}  // namespace accelerate
