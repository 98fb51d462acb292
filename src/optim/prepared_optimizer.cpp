#include "accelerate/prepared_optimizer.h"

#include <torch/optim/optimizer.h>

#include <utility>

#include "accelerate/errors.h"

namespace accelerate {

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<detail::PassCounter> passes)
    : optimizer_(std::move(optimizer)),
      passes_(std::move(passes)),
      backwards_at_last_step_(std::make_shared<int64_t>(passes_->backwards)) {}

at::Tensor PreparedOptimizer::step(LossClosure closure) {
  if (!closure) require_synchronised_gradients();  // a closure runs its own backward passes
  at::Tensor loss = optimizer_->step(std::move(closure));
  *backwards_at_last_step_ = passes_->backwards;
  return loss;
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

void PreparedOptimizer::require_synchronised_gradients() {
  const bool backward_came = passes_->backwards != *backwards_at_last_step_;
  if (backward_came || passes_->forwards_since_backward == 0) return;
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      UsageError error({.what = "the gradients are those of this rank alone: they did not go "
                                "through accelerator.backward(loss)",
                        .where = "optimizer.step()",
                        .hint = "call accelerator.backward(loss) instead of loss.backward()"});
      error.set_rank(passes_->rank, passes_->world_size);
      throw error;
    }
  }
}

}  // namespace accelerate
