// Gradients travel between the ranks as half, as bfloat16 or as thin matrices (PowerSGD): fewer
// bytes, nearly the same training. Usage: ddp_comm_hook [no|fp16|bf16|power_sgd]
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <string>

#include "../command_line.h"

constexpr int64_t kWidth = 32;

void train(const std::string& hook) {
  accelerate::Accelerator accelerator(
      {.ddp = {.comm_hook = {
                   .hook = hook,
                   .power_sgd = {.matrix_approximation_rank = 4, .start_power_sgd_iter = 2}}}});
  // A matrix is learned from what it makes of random vectors.
  torch::manual_seed(1);
  const auto secret = torch::randn({kWidth, kWidth}) / 4;
  const auto x = torch::randn({512, kWidth});
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
      optimizer.step();
    }
  }
  const auto mean = accelerator.reduce(loss.detach(), "mean");
  accelerator.print("gradients sent as ", hook, ": loss ", mean.item<double>());
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "[no|fp16|bf16|power_sgd]",
                    "Sends gradients in fewer bytes, as bf16 by default.");
  const std::string hook = words.choice(0, {"no", "fp16", "bf16", "power_sgd"}, "bf16");
  return accelerate::run([&] { train(hook); });
}
