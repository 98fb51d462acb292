// An LSTM that reads long series piece by piece and keeps its state from one piece to the next,
// with a learning rate of torch::optim::StepLR.
#include <accelerate/accelerate.h>
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
  accelerate::Accelerator accelerator(
      {.scheduler = {.pace = accelerate::SchedulerPace::kPerOptimizerStep}});
  torch::manual_seed(1);
  torch::Device device = accelerator.device();

  auto series = accelerator.split_between_processes(make_series()).to(device);
  Forecaster net;
  torch::optim::Adam adam(net->parameters(), 2e-2);
  torch::optim::StepLR step_lr(adam, /*step_size=*/12, /*gamma=*/0.5);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adam, step_lr);

  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    net->forget();
    double total = 0;
    int64_t pieces = 0;
    for (int64_t at = 0; at + kPiece < kLength; at += kPiece) {
      auto input = series.slice(1, at, at + kPiece);
      auto target = series.slice(1, at + 1, at + kPiece + 1);
      auto loss = torch::mse_loss(model->forward(input), target);
      optimizer.zero_grad();
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      scheduler.step();
      total += loss.item<double>();
      ++pieces;
    }
    const double rate = optimizer.param_groups()[0].options().get_lr();
    const double mean = accelerator.reduce(total / pieces, "mean");
    accelerator.print("epoch ", epoch, " loss ", mean, " rate ", rate);
  }
}
