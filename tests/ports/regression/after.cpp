// Finds a polynomial, and stops when it is good enough or gets no better.
//   usage: PROGRAM [BATCH_SIZE]
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

constexpr int64_t kDegree = 4;
constexpr int64_t kPoints = 256;
constexpr int kMostEpochs = 200;
constexpr int kPatience = 5;

// x, x^2, x^3, x^4.
torch::Tensor powers_of(torch::Tensor x) {
  std::vector<torch::Tensor> columns;
  for (int64_t i = 1; i <= kDegree; ++i) columns.push_back(x.pow(i));
  return torch::stack(columns, 1);
}

struct Points : torch::data::datasets::Dataset<Points> {
  Points(torch::Tensor x, torch::Tensor y) : x_(std::move(x)), y_(std::move(y)) {}
  torch::data::Example<> get(size_t index) override {
    return {x_[static_cast<int64_t>(index)], y_[static_cast<int64_t>(index)]};
  }
  torch::optional<size_t> size() const override { return x_.size(0); }

  torch::Tensor x_;
  torch::Tensor y_;
};

int main(int argc, char** argv) {
  const size_t batch_size = argc > 1 ? std::stoul(argv[1]) : 32;
  accelerate::Accelerator accelerator;
  torch::manual_seed(3);

  // The polynomial and the points are drawn before the loop, the loop draws nothing.
  auto wanted_weights = torch::randn({kDegree, 1}) * 2;
  auto wanted_bias = torch::randn({1}) * 2;
  auto x = powers_of(torch::rand({kPoints}) * 2 - 1);
  auto y = x.matmul(wanted_weights) + wanted_bias;

  torch::nn::Linear net(kDegree, 1);
  torch::optim::SGD sgd(net->parameters(), 0.3);
  auto batches_of_points = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Points(x, y).map(torch::data::transforms::Stack<>()), batch_size);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, batches_of_points);

  double best = 1e30;
  int epochs_since_best = 0;
  int epoch = 0;
  while (++epoch <= kMostEpochs) {
    double total = 0;
    int64_t batches = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      auto loss = torch::smooth_l1_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      total += loss.item<double>();
      ++batches;
    }
    const double loss = accelerator.reduce(total / batches, "mean");
    if (epoch % 10 == 0) accelerator.print("epoch ", epoch, " loss ", loss);
    epochs_since_best = loss < 0.999 * best ? 0 : epochs_since_best + 1;
    best = std::min(best, loss);
    if (loss < 1e-3 || epochs_since_best == kPatience) break;
  }
  accelerator.print("stopped in epoch ", epoch, " at loss ", best);
  accelerator.print("bias wanted ", wanted_bias.item<double>(), " found ",
                    net->bias.item<double>());
}
