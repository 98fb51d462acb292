// An optimizer that belongs to an accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "accelerate/detail/prepared_models.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace accelerate {

class OptimizerStep;

// What Accelerator::prepare makes of a torch::optim optimizer: the same object behind the calls of
// the training loop. Its parameters, options and state stay in that object; SGD, Adam, AdamW and
// Adagrad are updated by fused kernels, RMSprop by list operators, others by their own step(). A
// handle: copies share the optimizer. One thread at a time.
class PreparedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                    std::shared_ptr<detail::PreparedModels> models);

  // Updates the parameters that have a gradient, as the optimizer's own step() would. With a
  // closure the loss is computed first and returned; LBFGS calls it as often as it needs. Throws
  // UsageError if gradients came from loss.backward() where only Accelerator::backward brings those
  // of the ranks together.
  at::Tensor step(LossClosure closure = nullptr);
  void zero_grad(bool set_to_none = true);

  std::vector<torch::optim::OptimizerParamGroup>& param_groups();
  // The user's own optimizer, for whatever is not offered here.
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  void require_synchronised_gradients() const;

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<detail::PreparedModels> models_;
  std::shared_ptr<OptimizerStep> step_;
};

}  // namespace accelerate
