// The problem that most of these examples share: points on the line y = 2x + 3, and a model that
// begins at y = 0, so that runs can be compared.
#pragma once

#include <accelerate/accelerate.h>
#include <torch/torch.h>

namespace toy {

inline torch::Tensor inputs(int64_t points) { return torch::linspace(-1, 1, points).unsqueeze(1); }
inline torch::Tensor outputs(const torch::Tensor& x) { return 2 * x + 3; }

inline accelerate::TensorDataset points_on_a_line(int64_t points) {
  const auto x = inputs(points);
  return {x, outputs(x)};
}

inline torch::nn::Linear flat_line() {
  torch::nn::Linear line(1, 1);
  torch::nn::init::zeros_(line->weight);
  torch::nn::init::zeros_(line->bias);
  return line;
}

// Slope and intercept, on the CPU.
inline torch::Tensor parameters_of(const std::vector<torch::Tensor>& parameters) {
  return torch::cat({parameters[0].detach().flatten(), parameters[1].detach()}).cpu();
}

}  // namespace toy
