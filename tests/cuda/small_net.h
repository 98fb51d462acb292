// The model that tests of training on a GPU share.
#pragma once

#include <torch/nn/modules/linear.h>

namespace accelerate::test {

struct SmallNetImpl : torch::nn::Module {
  torch::nn::Linear first{8, 32};
  torch::nn::Linear second{32, 3};
  SmallNetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
};
TORCH_MODULE(SmallNet);

}  // namespace accelerate::test
