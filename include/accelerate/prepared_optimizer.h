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

// What Accelerator::prepare makes of a torch::optim optimizer: the same object behind the calls of
// the training loop. A handle: copies share the optimizer. One thread at a time.
class PreparedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                    std::shared_ptr<detail::PreparedModels> models);

  // Updates the parameters. Throws UsageError if gradients came from loss.backward() where only
  // Accelerator::backward brings those of the ranks together.
  at::Tensor step(LossClosure closure = nullptr);
  void zero_grad(bool set_to_none = true);

  std::vector<torch::optim::OptimizerParamGroup>& param_groups();
  // The user's own optimizer, for whatever is not offered here.
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  void require_synchronised_gradients() const;

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<detail::PreparedModels> models_;
};

}  // namespace accelerate
