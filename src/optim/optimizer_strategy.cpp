#include "accelerate/strategy.h"
#include "optim/drop_gradients.h"

namespace accelerate {

std::vector<at::Tensor> OptimizerStrategy::parameters() const { return parameters_of(optimizer_); }

}  // namespace accelerate
