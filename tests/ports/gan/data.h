// Pictures of one round blob each, at different places. The same in every run and on every rank.
#pragma once

#include <torch/torch.h>

// `count` pictures of 8 x 8 pixels, from -1 to 1.
inline torch::Tensor blobs(int64_t count) {
  const auto grid = torch::linspace(-1, 1, 8);
  const auto turn = torch::arange(count).to(torch::kFloat).view({-1, 1, 1, 1});
  const auto rows = grid.view({1, 1, 8, 1}) - 0.4 * torch::sin(turn * 0.7);
  const auto columns = grid.view({1, 1, 1, 8}) - 0.4 * torch::cos(turn * 1.3);
  return 2 * torch::exp(-4 * (rows.square() + columns.square())) - 1;
}
