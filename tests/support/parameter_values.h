// Models whose parameters all are one number: it says which save they come from.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace accelerate::test {

inline void fill_parameters(const torch::nn::Module& module, int64_t number) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) parameter.fill_(static_cast<double>(number));
}

inline bool parameters_are(const torch::nn::Module& module, int64_t number) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.eq(static_cast<double>(number)).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace accelerate::test
