// A training program that is killed, cut off and started again from outside, for tests of faults.
//
//   fault_program FOLDER [STEPS [PAUSE_MS]]   trains STEPS steps (40), each at least PAUSE_MS long
//                                             (5), on batches of 12 samples over all ranks; saves
//                                             after every fourth step under FOLDER, and at the end,
//                                             with all its state, in FOLDER/final
//
// Each rank says where it begins, rank 0 which samples each step has used. SIGUSR1 and SIGTERM make
// it save and leave with the code of preemption.
#include <accelerate/accelerate.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/numeric_names.h"

namespace {

constexpr int64_t kSamples = 60;
constexpr int64_t kTotalBatch = 12;
constexpr int64_t kStepsBetweenSaves = 4;

struct Training {
  std::string folder;
  int64_t steps = 40;
  std::chrono::milliseconds pause{5};
};

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return second(torch::tanh(first(input))); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 8))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, 3))};
};

accelerate::AcceleratorOptions options(const std::string& folder) {
  accelerate::AcceleratorOptions options{.cpu = true};
  options.process_group.rendezvous_timeout = std::chrono::seconds(120);
  options.process_group.timeout = std::chrono::seconds(120);
  options.project = {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 3};
  options.data_loader.split_batches = true;  // the same total batch, however many ranks there are
  options.preemption.signals = {SIGUSR1, SIGTERM};
  return options;
}

// The number of each sample is its first feature.
accelerate::TensorDataset samples() {
  at::Tensor input = torch::sin(torch::arange(kSamples * 6)).reshape({kSamples, 6});
  const at::Tensor target = input.narrow(1, 1, 3).square();
  input.select(1, 0) = torch::arange(kSamples).to(torch::kFloat) / kSamples;
  return {input, target};
}

std::string sample_list(const at::Tensor& inputs) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < inputs.size(0); ++i) {
    numbers.push_back(std::lround(inputs[i][0].item<double>() * kSamples));
  }
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (const int64_t number : numbers) text += " " + std::to_string(number);
  return text;
}

int train(const Training& training) {
  accelerate::Accelerator accelerator(options(training.folder));
  const int rank = accelerator.process_index();
  const int restart = accelerator.state().restart_count();
  torch::manual_seed(5);
  auto net = std::make_shared<Net>();
  torch::optim::AdamW adamw(net->parameters(), 0.01);
  accelerate::Scheduler schedule = accelerate::get_scheduler(
      "linear", adamw, {.warmup_steps = 3, .training_steps = 2 * training.steps});
  auto batches = accelerate::data_loader(samples(), {.batch_size = kTotalBatch, .shuffle = true});
  auto [model, optimizer, scheduler, loader] = accelerator.prepare(net, adamw, schedule, batches);

  accelerator.resume();
  int64_t step = optimizer.step_count();
  std::printf("rank %d of %d pid %d begins restart %d at step %ld.\n", rank,
              accelerator.num_processes(), static_cast<int>(getpid()), restart,
              static_cast<long>(step));
  std::fflush(stdout);
  while (step < training.steps) {
    for (auto& batch : loader) {
      const at::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      ++step;
      const at::Tensor used = accelerator.gather_for_metrics(batch.data);
      if (accelerator.is_main_process()) {
        std::printf("restart %d step %ld samples%s.\n", restart, static_cast<long>(step),
                    sample_list(used).c_str());
        std::fflush(stdout);
      }
      std::this_thread::sleep_for(training.pause);
      if (accelerator.should_checkpoint_and_exit()) {
        accelerator.save_state();
        std::printf("rank %d was preempted at step %ld.\n", rank, static_cast<long>(step));
        std::fflush(stdout);
        return accelerator.preemption_exit_code();
      }
      if (step % kStepsBetweenSaves == 0) accelerator.save_state();
      if (step == training.steps) break;
    }
  }
  accelerator.save_state(training.folder + "/final");
  double sum = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
  }
  if (accelerator.is_main_process()) std::printf("learned %.9f.\n", sum);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) throw std::invalid_argument("fault_program FOLDER [STEPS [PAUSE_MS]]");
  Training training{.folder = argv[1]};
  if (argc > 2) training.steps = std::stoll(argv[2]);
  if (argc > 3) training.pause = std::chrono::milliseconds(std::stoll(argv[3]));
  return train(training);
}
