// Any rank may stop the training of all: it sets a trigger, which all ranks look at after each
// step. Here the last rank stops when its own loss is small.
#include "../command_line.h"
#include "toy.h"

void train() {
  accelerate::Accelerator accelerator;
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.2);
  auto batches = accelerate::data_loader(toy::points_on_a_line(128), {.batch_size = 16});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);

  int64_t steps = 0;
  bool stopped = false;
  for (int epoch = 0; epoch < 100 && !stopped; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      ++steps;

      if (accelerator.is_last_process() && loss.item<double>() < 1e-3) accelerator.set_trigger();
      stopped = accelerator.check_trigger();  // the same answer on all ranks
      if (stopped) break;
    }
  }
  const auto all = accelerator.gather(torch::tensor({steps}, accelerator.device()));
  const bool together = all.eq(steps).all().item<bool>();
  accelerator.print(stopped ? "stopped" : "finished", " after ", steps,
                    " steps, all ranks alike: ", together ? "yes" : "no");
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "Any rank may stop the training of all.");
  return accelerate::run(train);
}
