#include "strategy/ddp/update_checks.h"

#include <string>

namespace accelerate {

void UpdateChecks::note_parameters(const std::vector<at::Tensor>& parameters) {
  if (!loose_ || parameters.size() == loose_->known()) return;
  std::vector<const torch::nn::Module*> modules;
  for (const ReplicaState& replica : replicas_()) modules.push_back(replica.module);
  loose_->update(parameters, modules);
}

void UpdateChecks::before_update(const std::vector<at::Tensor>& parameters) {
  if (!loose_) return;
  note_parameters(parameters);
  loose_->before_step();
  require_same_assigned(parameters);
}

// Gradients that no pass since the last update has averaged.
void UpdateChecks::require_same_assigned(const std::vector<at::Tensor>& parameters) {
  NamedValues assigned;
  for (const ReplicaState& replica : replicas_()) {
    const bool is_reduced =
        std::exchange(reduced_[replica.number], replica.reduced_passes) != replica.reduced_passes;
    if (is_reduced || loose_->compared_assigned() || !replica.is_replicated) continue;
    size_t index = 0;
    for (const at::Tensor& parameter : parameters) {
      const std::string name = "parameter " + std::to_string(index++);
      if (parameter.grad().defined() && replica.trains(parameter)) {
        assigned.emplace_back(name, parameter.grad());
      }
    }
  }
  loose_->require_same_assigned(assigned);
}

}  // namespace accelerate
