#include "accelerate/prepared_optimizer.h"

#include <torch/optim/optimizer.h>

#include <utility>

#include "accelerate/errors.h"
#include "optim/optimizer_step.h"

namespace accelerate {

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<detail::PreparedModels> models)
    : optimizer_(std::move(optimizer)),
      models_(std::move(models)),
      step_(make_optimizer_step(*optimizer_)) {}

at::Tensor PreparedOptimizer::step(LossClosure closure) {
  if (!closure) require_synchronised_gradients();  // a closure runs its own backward passes
  return step_->step(std::move(closure));
}

// Not torch's own zero_grad(): it detaches in place, which gradients inside buckets
// (DdpOptions::gradient_as_bucket_view) do not allow.
void PreparedOptimizer::zero_grad(bool set_to_none) {
  for (auto& group : optimizer_->param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (set_to_none) {
        gradient.reset();
      } else {
        gradient = gradient.detach();
        gradient.zero_();
      }
    }
  }
}

std::vector<torch::optim::OptimizerParamGroup>& PreparedOptimizer::param_groups() {
  return optimizer_->param_groups();
}

void PreparedOptimizer::require_synchronised_gradients() const {
  try {
    for (const auto& model : models_->entries) {
      for (const auto& group : optimizer_->param_groups()) {
        for (const at::Tensor& parameter : group.params()) {
          model.strategy->require_synchronised(parameter);
        }
      }
    }
  } catch (Error& error) {
    error.set_rank(models_->rank, models_->world_size);
    throw;
  }
}

}  // namespace accelerate
