// A training program that goes on from its newest checkpoint, for tests of restarts.
//
//   resume_program FOLDER [KILL...]   trains kSteps steps, saves after every third one, and prints
//                                     where it began and, bit by bit, what it has learned
//
// KILL is RANK:STEP:RESTART: that rank kills itself in that attempt, in the middle of that step,
// or, where the step ends with a save, in the middle of the save.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/numeric_names.h"

namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kStepsBetweenSaves = 3;

struct Kill {
  int rank = -1;
  long step = -1;
  int restart = -1;
};

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return second(drop(torch::tanh(first(input)))); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 8))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.4))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, 3))};
};

accelerate::AcceleratorOptions options(const std::string& folder) {
  accelerate::AcceleratorOptions options{.cpu = true};
  options.process_group.rendezvous_timeout = std::chrono::seconds(120);
  options.process_group.timeout = std::chrono::seconds(120);
  options.project = {.project_dir = folder, .automatic_checkpoint_naming = true};
  return options;
}

accelerate::TensorDataset samples() {
  const at::Tensor input = torch::sin(torch::arange(22 * 6)).reshape({22, 6});
  return {input, input.narrow(1, 0, 3).square()};
}

bool has_checkpoint(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/checkpoints", none)) {
    if (entry.path().filename().string().starts_with("checkpoint_")) return true;
  }
  return false;
}

void train(accelerate::Accelerator& accelerator, const std::string& folder,
           const std::vector<Kill>& kills) {
  const int rank = accelerator.process_index();
  const int restart = accelerator.state().restart_count();
  accelerate::set_seed(5, {.device_specific = true, .rank = rank});
  auto net = std::make_shared<Net>();
  torch::optim::AdamW adamw(net->parameters(), 0.01);
  accelerate::Scheduler schedule =
      accelerate::get_scheduler("linear", adamw, {.warmup_steps = 3, .training_steps = 2 * kSteps});
  auto batches = accelerate::data_loader(samples(), {.batch_size = 2, .shuffle = true});
  auto [model, optimizer, scheduler, loader] = accelerator.prepare(net, adamw, schedule, batches);

  int64_t step = 0;
  const auto killed_here = [&] {
    for (const Kill& kill : kills) {
      if (kill.rank == rank && kill.step == step && kill.restart == restart) raise(SIGKILL);
    }
  };
  auto hook = accelerator.register_save_state_pre_hook([&](auto&, const auto&) { killed_here(); });

  if (has_checkpoint(folder)) accelerator.load_state();
  step = optimizer.step_count();
  std::printf("rank %d begins restart %d at step %ld\n", rank, restart, static_cast<long>(step));
  std::fflush(stdout);
  while (step < kSteps) {
    for (auto& batch : loader) {
      const at::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      accelerator.log({{"loss", loss}}, step);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      ++step;
      if (step % kStepsBetweenSaves == 0) {
        accelerator.save_state();
      } else {
        killed_here();
      }
      if (step == kSteps) break;
    }
  }
  std::string bits;
  for (const at::Tensor& values : {net->first->weight, net->second->bias, torch::rand({2})}) {
    const at::Tensor flat = values.detach().flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      char text[40];
      std::snprintf(text, sizeof text, " %a", flat[i].item<double>());
      bits += text;
    }
  }
  std::printf("rank %d has learned%s\n", rank, bits.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) throw std::invalid_argument("resume_program FOLDER [RANK:STEP:RESTART...]");
  std::vector<Kill> kills;
  for (int i = 2; i < argc; ++i) {
    Kill kill;
    if (std::sscanf(argv[i], "%d:%ld:%d", &kill.rank, &kill.step, &kill.restart) != 3) {
      throw std::invalid_argument(argv[i]);
    }
    kills.push_back(kill);
  }
  accelerate::Accelerator accelerator(options(argv[1]));
  train(accelerator, argv[1], kills);
  return 0;
}
