// The parameters of a model whose gradients the ranks exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accelerate {

struct TrainableParameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  std::vector<bool> sparse;  // gets sparse gradients
};

// Those that need a gradient, each once: tied ones are reduced once.
TrainableParameters trainable_parameters(const torch::nn::Module& module);

}  // namespace accelerate
