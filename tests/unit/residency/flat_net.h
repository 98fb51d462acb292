// A small model and its flat unit, for tests.
#pragma once

#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "residency/flat_unit.h"
#include "support/test_device.h"

namespace accelerate::test {

struct FlatNetImpl : torch::nn::Module {
  torch::nn::Linear first{6, 11};
  torch::nn::Linear second{11, 3};
  FlatNetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
};
TORCH_MODULE(FlatNet);

// The same at each call, on the device of the tests.
inline FlatNet flat_net() {
  test_device();
  torch::manual_seed(5);
  FlatNet net;
  net->to(test_device());
  return net;
}

inline std::shared_ptr<residency::FlatUnit> unit_of(const torch::nn::Module& module,
                                                    const FlatOptions& options = {}) {
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    parameters.push_back(item.value());
    names.push_back(item.key());
  }
  return std::make_shared<residency::FlatUnit>(parameters, names, options);
}

}  // namespace accelerate::test
