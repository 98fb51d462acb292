// The small network that the checks of training share, and the data that it learns from.
#pragma once

#include <torch/torch.h>

#include <memory>

namespace accelerate::selftest {

struct Network : torch::nn::Module {
  explicit Network(double dropout = 0)
      : first(register_module("first", torch::nn::Linear(6, 16))),
        drop(register_module("drop", torch::nn::Dropout(dropout))),
        second(register_module("second", torch::nn::Linear(16, 3))) {}
  at::Tensor forward(const at::Tensor& input) { return second(drop(torch::tanh(first(input)))); }

  torch::nn::Linear first;
  torch::nn::Dropout drop;
  torch::nn::Linear second;
};

// The same for the same seed, on whichever rank.
inline std::shared_ptr<Network> network(uint64_t seed, double dropout = 0) {
  torch::manual_seed(seed);
  return std::make_shared<Network>(dropout);
}

struct Problem {
  at::Tensor input, target;

  // Rows `first` to `first + count - 1`, as `like` is.
  Problem rows(int64_t first, int64_t count, const at::TensorOptions& like) const {
    return {input.narrow(0, first, count).to(like), target.narrow(0, first, count).to(like)};
  }
};

// What all ranks together learn from in one step.
inline Problem problem(uint64_t seed, int64_t rows) {
  auto generator = at::detail::createCPUGenerator(seed);
  return {torch::randn({rows, 6}, generator), torch::randn({rows, 3}, generator)};
}

}  // namespace accelerate::selftest
