// When the cluster wants the machine back it sends SIGTERM: the training saves its state after the
// batch it is at, on all ranks alike, and leaves with a code of its own, after which it can be
// started again. Also works if only one rank gets the signal.
//
// The launcher hands SIGTERM on and waits for its grace period (--grace_period) before it
// kills: the batch and the save must fit into that.
//
//   preemption [FOLDER]
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "../command_line.h"
#include "toy.h"

int train(const std::filesystem::path& state) {
  accelerate::Accelerator accelerator({.preemption = {.signals = {SIGTERM}}});
  accelerate::set_seed(42);  // of the order of the data: a new run repeats the last one
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.05);
  auto batches =
      accelerate::data_loader(toy::points_on_a_line(64), {.batch_size = 4, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
  accelerator.load_state(state, {.if_any = true});
  accelerator.print("begins after ", optimizer.step_count(), " steps");

  while (optimizer.step_count() < 100) {
    for (auto& batch : loader) {
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
      optimizer.zero_grad();
      if (optimizer.step_count() == 20) accelerator.print("at step 20");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // stands for a larger model

      if (accelerator.should_checkpoint_and_exit()) {
        accelerator.save_state(state);
        accelerator.print("saved after ", optimizer.step_count(), " steps");
        return accelerator.preemption_exit_code();
      }
      if (optimizer.step_count() == 100) break;
    }
  }
  const auto found = toy::parameters_of(model.parameters());
  accelerator.print("y = ", found[0].item<double>(), " x + ", found[1].item<double>());
  return 0;
}

int main(int argc, char** argv) {
  const Words words(
      argc, argv, "[FOLDER]",
      "Saves its state to FOLDER [preemption_state] at SIGTERM, and resumes from there.");
  return accelerate::run(
      [&] { return train(std::filesystem::path(words.text(0, "preemption_state")) / "state"); });
}
