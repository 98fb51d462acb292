// The ranks share out what training keeps for each parameter, as flags, files or variables of the
// launcher say. Stages of ZeRO by flags alone:
//
//   accelerate launch --num_processes 2 --use_deepspeed --zero_stage 2 zero
//   accelerate launch --num_processes 2 --use_fsdp zero
//
// by a configuration of DeepSpeed, which has an optimizer and a schedule too:
//
//   accelerate launch --num_processes 2 --use_deepspeed --deepspeed_config_file deepspeed.json zero
//
// and by a file: accelerate launch --config_file fsdp.yaml zero. Without any of them it is DDP.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <variant>

#include "../command_line.h"

constexpr int64_t kWidth = 64;
constexpr int kEpochs = 20;

int stage_of(const accelerate::Accelerator& accelerator) {
  const auto* zero = std::get_if<accelerate::ZeroOptions>(&accelerator.options().strategy);
  return zero != nullptr ? zero->stage : 0;
}

void train() {
  accelerate::Accelerator accelerator;
  // A matrix is learned from what it makes of random vectors.
  torch::manual_seed(1);
  const auto secret = torch::randn({kWidth, kWidth}) / 8;
  const auto x = torch::randn({256, kWidth});
  accelerate::TensorDataset vectors(x, x.matmul(secret));

  torch::nn::Linear linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  torch::optim::AdamW adamw(linear->parameters(), torch::optim::AdamWOptions(0.03).weight_decay(0));
  // The optimizer of the configuration, if it has one, else adamw.
  const accelerate::ConfiguredOptimizer chosen(adamw);
  auto batches = accelerate::data_loader(vectors, {.batch_size = 32, .shuffle = true, .seed = 1});
  auto [model, optimizer, loader] = accelerator.prepare(linear, chosen, batches);

  torch::Tensor loss;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : loader) {
      const auto window = accelerator.accumulate(model);
      optimizer.zero_grad();
      loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
    }
  }
  // What the optimizer holds on this rank: its share of the matrix.
  int64_t elements = 0;
  for (const auto& shard : optimizer.param_groups()[0].params()) elements += shard.numel();
  const auto mean = accelerator.reduce(loss.detach(), "mean");
  accelerator.print("stage ", stage_of(accelerator), ": rank 0 updates ", elements, " of ",
                    kWidth * kWidth, " elements, loss ", mean.item<double>());
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "",
                    "Trains in shards, as the flags of accelerate launch say: --use_deepspeed "
                    "--zero_stage 3, say.");
  return accelerate::run(train);
}
