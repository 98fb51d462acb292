#include "strategy/ddp/update_checks.h"

#include <string>

namespace accelerate {

void UpdateChecks::note_parameters(const std::vector<at::Tensor>& parameters) {
  if (!loose_ || parameters.size() == loose_->known()) return;
  std::vector<const torch::nn::Module*> modules;
  for (const auto& model : live_()) modules.push_back(&model->module());
  loose_->update(parameters, modules);
}

void UpdateChecks::before_update(const std::vector<at::Tensor>& parameters) {
  const Models models = live_();
  for (const auto& model : models) model->require_synchronised(parameters);
  if (!loose_) return;
  note_parameters(parameters);
  loose_->before_step();
  require_same_assigned(models, parameters);
}

// Gradients that no pass since the last update has averaged.
void UpdateChecks::require_same_assigned(const Models& models,
                                         const std::vector<at::Tensor>& parameters) {
  std::erase_if(reduced_, [](const auto& item) { return item.first.expired(); });
  NamedValues assigned;
  for (const auto& model : models) {
    const int64_t passes = model->reduced_passes();
    const bool is_reduced = std::exchange(reduced_[model], passes) != passes;
    if (is_reduced || loose_->compared_assigned() || !model->is_replicated()) continue;
    size_t index = 0;
    for (const at::Tensor& parameter : parameters) {
      const std::string name = "parameter " + std::to_string(index++);
      if (parameter.grad().defined() && model->equalizes(parameter)) {
        assigned.emplace_back(name, parameter.grad());
      }
    }
  }
  loose_->require_same_assigned(assigned);
}

}  // namespace accelerate
