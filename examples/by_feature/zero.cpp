// The ranks share out what training keeps for each parameter: in stage 1 the state of the
// optimizer, in stage 2 gradients too, in stage 3 parameters too. The loop is that of DDP (stage
// 0). Usage: zero [0|1|2|3]
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <string>

#include "../command_line.h"

constexpr int64_t kWidth = 64;

accelerate::StrategyOptions strategy_of(const std::string& stage) {
  if (stage == "0") return accelerate::AutoStrategy{};
  return accelerate::ZeroOptions{.stage = std::stoi(stage)};
}

void train(const std::string& stage) {
  accelerate::Accelerator accelerator({.strategy = strategy_of(stage)});
  // A matrix is learned from what it makes of random vectors.
  torch::manual_seed(1);
  const auto secret = torch::randn({kWidth, kWidth}) / 8;
  const auto x = torch::randn({256, kWidth});
  accelerate::TensorDataset vectors(x, x.matmul(secret));

  torch::nn::Linear linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  torch::optim::AdamW adamw(linear->parameters(), torch::optim::AdamWOptions(0.03).weight_decay(0));
  auto batches = accelerate::data_loader(vectors, {.batch_size = 32, .shuffle = true, .seed = 1});
  auto [model, optimizer, loader] = accelerator.prepare(linear, adamw, batches);

  torch::Tensor loss;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
    }
  }
  // What AdamW holds on this rank: its share of the matrix.
  int64_t elements = 0;
  for (const auto& shard : adamw.param_groups()[0].params()) elements += shard.numel();
  const auto mean = accelerator.reduce(loss.detach(), "mean");
  accelerator.print("stage ", stage, ": AdamW updates ", elements, " of ", kWidth * kWidth,
                    " elements, loss ", mean.item<double>());
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "[0|1|2|3]",
                    "Shares the training out over the ranks, by stage 2 of "
                    "ZeRO by default.");
  const std::string stage = words.choice(0, {"0", "1", "2", "3"}, "2");
  return accelerate::run([&] { train(stage); });
}
