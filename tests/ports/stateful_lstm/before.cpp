// An LSTM that reads long series piece by piece and keeps its state from one piece to the next,
// with a learning rate of torch::optim::StepLR.
#include <torch/torch.h>

#include <iostream>
#include <optional>
#include <tuple>

constexpr int64_t kSeries = 8;
constexpr int64_t kLength = 161;
constexpr int64_t kPiece = 16;
constexpr int kEpochs = 4;

struct ForecasterImpl : torch::nn::Module {
  ForecasterImpl() : lstm(torch::nn::LSTMOptions(1, 16).batch_first(true)), head(16, 1) {
    register_module("lstm", lstm);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto [output, state] = lstm->forward(x, state_);
    state_ = {std::get<0>(state).detach(), std::get<1>(state).detach()};
    return head->forward(output);
  }
  void forget() { state_.reset(); }

  torch::nn::LSTM lstm;
  torch::nn::Linear head;
  std::optional<std::tuple<torch::Tensor, torch::Tensor>> state_;
};
TORCH_MODULE(Forecaster);

// Rows of sums of two waves, one value more than there are pieces to predict.
torch::Tensor make_series() {
  const auto time = torch::arange(kLength).to(torch::kFloat).view({1, -1, 1});
  const auto row = torch::arange(kSeries).to(torch::kFloat).view({-1, 1, 1});
  return torch::sin(time * (0.2 + 0.03 * row)) + 0.5 * torch::cos(time * 0.07 + row);
}

int main() {
  torch::manual_seed(1);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  auto series = make_series().to(device);
  Forecaster model;
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), 2e-2);
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/12, /*gamma=*/0.5);

  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    model->forget();
    double total = 0;
    int64_t pieces = 0;
    for (int64_t at = 0; at + kPiece < kLength; at += kPiece) {
      auto input = series.slice(1, at, at + kPiece);
      auto target = series.slice(1, at + 1, at + kPiece + 1);
      auto loss = torch::mse_loss(model->forward(input), target);
      optimizer.zero_grad();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      scheduler.step();
      total += loss.item<double>();
      ++pieces;
    }
    const double rate = optimizer.param_groups()[0].options().get_lr();
    std::cout << "epoch " << epoch << " loss " << total / pieces << " rate " << rate << std::endl;
  }
}
