// Throws gradients away.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensor/optimizer_parameters.h"

namespace accelerate {

// What zero_grad() of torch does, where nothing is recorded; gradients that graphs remember keep
// their memory (device::KeptGradients).
void drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none);

}  // namespace accelerate
