// Four micro-batches of 8 samples make one step of the optimizer: the numbers are those of batches
// of 32, in a quarter of the memory. 104 samples are three full windows and a short one.
#include "../command_line.h"
#include "toy.h"

constexpr int64_t kPoints = 104;
constexpr int64_t kMicroBatch = 8;
constexpr int64_t kSteps = 4;
constexpr double kRate = 0.05;

// The same training with plain libtorch and big batches.
torch::Tensor train_on_big_batches() {
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), kRate);
  const auto x = toy::inputs(kPoints);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const auto& batch : x.split(kMicroBatch * kSteps)) {
      sgd.zero_grad();
      torch::mse_loss(line(batch), toy::outputs(batch)).backward();
      sgd.step();
    }
  }
  return toy::parameters_of(line->parameters());
}

void train() {
  accelerate::Accelerator accelerator(
      {.gradient_accumulation = {.steps = kSteps}, .data_loader = {.split_batches = true}});
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), kRate);
  auto batches =
      accelerate::data_loader(toy::points_on_a_line(kPoints), {.batch_size = kMicroBatch});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);

  int64_t updates = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      auto window = accelerator.accumulate(model);
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      if (accelerator.sync_gradients()) ++updates;
      optimizer.step();       // only where the window ends
      optimizer.zero_grad();  // the same
    }
  }
  const auto learned = toy::parameters_of(model->parameters());
  const double difference = (learned - train_on_big_batches()).abs().max().item<double>();
  accelerator.print(updates, " updates, y = ", learned[0].item<double>(), " x + ",
                    learned[1].item<double>(), ", difference to big batches ", difference);
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "Four micro-batches make one step of the optimizer.");
  return accelerate::run(train);
}
