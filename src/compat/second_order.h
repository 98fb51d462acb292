// Gradients that cannot be differentiated once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accelerate::compat {

// `gradients` as a part of autograd's graph that throws when it is differentiated, and names
// `operation`.
std::vector<at::Tensor> refuse_second_order(const char* operation,
                                            std::vector<at::Tensor> gradients);

}  // namespace accelerate::compat
