// A chain of linear layers whose order can change, each of them a unit.
#pragma once

#include <accelerate/errors.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "unit/residency/lone_shards.h"

namespace accelerate::test {

struct ChainImpl : torch::nn::Module {
  explicit ChainImpl(int length, int width = 8) {
    for (int i = 0; i < length; ++i) {
      links.push_back(register_module(std::to_string(i), torch::nn::Linear(width, width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const size_t link : order.empty() ? ascending() : order) x = torch::tanh(links[link](x));
    return x;
  }
  std::vector<size_t> ascending() const {
    std::vector<size_t> all(links.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }
  std::vector<torch::nn::Linear> links{};
  std::vector<size_t> order{};
};
TORCH_MODULE(Chain);

inline Chain chain(int length) {
  torch::manual_seed(1);
  return Chain(length);
}

inline at::Tensor input() { return torch::linspace(-1, 1, 16).reshape({2, 8}); }

inline void train(Chain& net, LoneUnits& lone) {
  net->forward(input()).sum().backward();
  lone.units.release_all();
}

// What `action` throws as a UsageError.
template <class Action>
std::string refusal_of(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a UsageError";
  return {};
}

}  // namespace accelerate::test
