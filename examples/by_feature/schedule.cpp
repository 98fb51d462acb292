// A learning rate that warms up and decays to zero. The schedule is written for one process
// that sees all batches; N processes make N steps of it at a time and end at the same rate.
#include "../command_line.h"
#include "toy.h"

void train() {
  accelerate::Accelerator accelerator;
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.4);
  auto batches = accelerate::data_loader(toy::points_on_a_line(128),
                                         {.batch_size = 8, .shuffle = true, .seed = 1});
  const int64_t total = 4 * 16;  // epochs times batches of one process
  auto linear = accelerate::get_scheduler("linear", sgd,
                                          {.warmup_steps = total / 4, .training_steps = total});
  auto [model, optimizer, loader, scheduler] = accelerator.prepare(line, sgd, batches, linear);

  int64_t updates = 0;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
      scheduler.step();
      ++updates;
    }
    accelerator.print("epoch ", epoch, ": ", updates, " updates, rate ", scheduler.last_lr()[0]);
  }
  const auto learned = toy::parameters_of(model->parameters());
  accelerator.print("y = ", learned[0].item<double>(), " x + ", learned[1].item<double>());
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "A learning rate that warms up and decays to zero.");
  return accelerate::run(train);
}
