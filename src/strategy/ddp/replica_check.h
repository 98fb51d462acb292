// Whether the ranks hold the same model.
#pragma once

#include "accelerate/communicator.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// Compares name, dtype, shape, strides and requires_grad of all parameters and buffers over all
// ranks. Collective. Throws UsageError on all ranks alike that names the first that differs and the
// ranks.
void require_same_model(const torch::nn::Module& module, Communicator& communicator);

}  // namespace accelerate
