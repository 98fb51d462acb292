// Where the time of a step goes: a schedule that records two steps of each cycle, tables of what
// was recorded, and a trace of each process that is put together with those of the others.
#include "../command_line.h"
#include "toy.h"

void train(const std::string& folder) {
  accelerate::Accelerator accelerator;
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), 0.2);
  auto batches = accelerate::data_loader(toy::points_on_a_line(64), {.batch_size = 4});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);

  const auto tell = [&](const accelerate::ProfileTrace& trace) {
    accelerator.print("recorded up to step ", trace.step_num());
    accelerator.print(trace.operator_table({.row_limit = 5}));
  };
  auto profile =
      accelerator.profile({.schedule = {{.wait = 1, .warmup = 1, .active = 2, .repeat = 2}},
                           .on_trace_ready = tell,
                           .profile_memory = true,
                           .with_modules = true,
                           .output_trace_dir = folder});
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(model(batch.data), batch.target);
    accelerator.backward(loss);
    optimizer.step();
    profile.step();
  }
  profile.end();
  const auto steps = profile.step_times_of_all_ranks();
  accelerator.print(accelerate::step_table(steps));
  accelerator.print(profile.trace()->module_table());
  accelerator.print(profile.trace()->memory_table());
  if (accelerator.is_main_process()) {
    const auto merged = accelerate::merge_traces(folder);
    accelerator.print(merged.ranks.size(), " processes in ", merged.path.filename().string());
  }
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "FOLDER",
                    "Profiles a short training and leaves its traces in FOLDER.");
  return accelerate::run([&] { train(words.text(0)); });
}
