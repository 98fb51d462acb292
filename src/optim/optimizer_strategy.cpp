#include "accelerate/strategy.h"
#include "optim/drop_gradients.h"
#include "optim/optimizer_step.h"

namespace accelerate {

std::vector<at::Tensor> OptimizerStrategy::parameters() const { return parameters_of(optimizer_); }

void OptimizerStrategy::drop_gradients(bool set_to_none) {
  accelerate::drop_gradients(parameters(), set_to_none);
}

std::unique_ptr<OptimizerStep> OptimizerStrategy::make_step() {
  return make_optimizer_step(optimizer_);
}

}  // namespace accelerate
