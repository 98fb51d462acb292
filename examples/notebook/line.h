// A training function that a program or a notebook runs on several processes: each of them learns
// from its share of points on the line y = 2x + 3.
#pragma once

#include <accelerate/accelerator.h>
#include <accelerate/dataset.h>
#include <torch/torch.h>

// Slope and intercept; the same on all processes.
inline torch::Tensor learn_line(int epochs) {
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);
  torch::nn::Linear line(1, 1);
  torch::optim::SGD sgd(line->parameters(), 0.1);
  auto x = torch::linspace(-1, 1, 64).unsqueeze(1);
  auto batches = accelerate::data_loader(accelerate::TensorDataset(x, 2 * x + 3),
                                         {.batch_size = 8, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
    }
  }
  return torch::cat({line->weight.detach().flatten(), line->bias.detach()});
}
