// Local SGD: each rank trains by itself, and every eighth step the ranks average their parameters.
// An eighth of the exchanges, at the price of updates that differ for a while.
#include "../command_line.h"
#include "toy.h"

void train() {
  accelerate::Accelerator accelerator;
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.2);
  auto batches = accelerate::data_loader(toy::points_on_a_line(160),
                                         {.batch_size = 8, .shuffle = true, .seed = 1});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);

  accelerate::LocalSgd local_sgd(accelerator.communicator(), model, {.local_sgd_steps = 8});
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
      local_sgd.step();
    }
  }
  local_sgd.finish();  // averages a last time: now all ranks have the same model

  const auto learned = toy::parameters_of(model->parameters());
  const auto all = accelerator.gather(learned.to(accelerator.device()).unsqueeze(0)).cpu();
  accelerator.print("y = ", learned[0].item<double>(), " x + ", learned[1].item<double>(),
                    ", equal on all ranks: ", all.eq(learned).all().item<bool>() ? "yes" : "no");
}

int main(int argc, char** argv) {
  const Words none(
      argc, argv, "",
      "Each rank trains by itself, and every eighth step the ranks average their parameters.");
  return accelerate::run(train);
}
