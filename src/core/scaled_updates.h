// Updates of optimizers whose losses are scaled.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <set>
#include <vector>

#include "accelerate/grad_scaler.h"

namespace accelerate {

// One scale for all optimizers of an accelerator. It changes between iterations only: when the next
// loss is scaled, so that optimizers that step one after the other meet the scale that their
// gradients have. One thread at a time.
class ScaledUpdates {
 public:
  explicit ScaledUpdates(const GradScalerOptions& options) : scaler_(options) {}

  at::Tensor scale(const at::Tensor& loss);
  // Does nothing where it is done already.
  void unscale(torch::optim::Optimizer& optimizer);
  // Has the form of OptimizerSurroundings::run_update.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& update);
  // With the scale that the next loss will have.
  GradScaler& scaler();

 private:
  void end_iteration();

  GradScaler scaler_;
  std::set<const torch::optim::Optimizer*> stepped_;  // since the scale was last adapted
};

// Whether one of `parameters` belongs to the optimizer.
bool has_any_of(const torch::optim::Optimizer& optimizer,
                const std::vector<at::Tensor>& parameters);

}  // namespace accelerate
