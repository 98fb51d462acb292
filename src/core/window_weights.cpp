#include "core/window_weights.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"

namespace accelerate {

void WindowWeights::add(std::optional<double> weight) {
  if (weight && !(std::isfinite(*weight) && *weight >= 0)) {
    throw UsageError(
        {.what = "the weight of a loss must be 0 or more, got " + std::to_string(*weight),
         .where = "backward"});
  }
  if (losses_ > 0 && weighted_ != weight.has_value()) {
    throw UsageError({.what = "losses with and without a weight in one window",
                      .where = "backward",
                      .hint = "give all losses of a window a weight, or none"});
  }
  // The first one has divided the gradients already, where the window ends.
  if (weight && weighted_in_micro_batch_) {
    throw UsageError({.what = "a second loss with a weight in one micro-batch",
                      .where = "backward",
                      .hint = "put the losses together into one"});
  }
  weighted_ = weight.has_value();
  weighted_in_micro_batch_ = weighted_;
  sum_ += weight.value_or(0);
  if (first_ == 0) first_ = weight.value_or(0);
  ++losses_;
}

double WindowWeights::mean_over(Communicator& ranks) const {
  at::Tensor sum = at::scalar_tensor(sum_, at::kDouble);
  ranks.all_reduce(sum);
  const double total = sum.item<double>();
  if (total <= 0) {
    throw UsageError({.what = "all losses of a window have the weight 0, on all ranks",
                      .where = "backward",
                      .hint = "leave batches without anything to learn from out"});
  }
  return total / ranks.world_size();
}

void scale_gradients(torch::nn::Module& module, double factor) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (factor == 1 || gradients.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, factor);
}

}  // namespace accelerate
