// What a loop logs, for TensorBoard and as lines of JSON. The loss is logged as it lies on the
// device: nothing waits for it. Started once more with "again" the run goes on from its checkpoint,
// and no step is recorded twice.
#include "../command_line.h"
#include "toy.h"

void train(const std::string& folder, bool again) {
  accelerate::AcceleratorOptions options;
  options.project.project_dir = folder;
  options.log_with = {"tensorboard", "jsonl"};
  accelerate::Accelerator accelerator(options);
  accelerator.init_trackers("line", {{"learning_rate", 0.2}, {"points", 64}});

  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.2);
  auto batches = accelerate::data_loader(toy::points_on_a_line(64), {.batch_size = 8});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
  if (again) accelerator.load_state(folder + "/checkpoint");

  const int first_epoch = again ? 2 : 0;
  int64_t step = first_epoch * loader.size();
  for (int epoch = first_epoch; epoch < 4; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      accelerator.log({{"loss", loss}, {"epoch", epoch}}, ++step);
    }
    accelerator.log_histogram("weights", line->weight, step);
    if (epoch == 1) accelerator.save_state(folder + "/checkpoint");
  }
  accelerator.end_training();
  accelerator.print(step, " steps are recorded");
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "FOLDER [again]",
                    "Logs to FOLDER for TensorBoard and as lines of JSON; \"again\" goes on from "
                    "the checkpoint that the first run left there.");
  const bool again = words.choice(1, {"new", "again"}, "new") == "again";
  return accelerate::run([&] { train(words.text(0), again); });
}
