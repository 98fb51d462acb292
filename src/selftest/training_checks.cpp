// Several processes learn what one would.
#include <torch/torch.h>

#include "selftest/expect.h"
#include "selftest/network.h"

namespace accelerate::selftest {
namespace {

constexpr uint64_t kSeed = 7;
constexpr int kSteps = 6;
constexpr int64_t kRowsOfStep = 12;  // of each rank in a step
// In double precision sums differ by their order alone.
constexpr double kTolerance = 1e-9;

torch::optim::SGDOptions descent() { return torch::optim::SGDOptions(0.1).momentum(0.9); }

// Parameters after the training of one process with all rows, by libtorch alone.
at::Tensor trained_alone(Accelerator& accelerator) {
  const at::TensorOptions like = at::TensorOptions(accelerator.device()).dtype(at::kDouble);
  auto net = network(kSeed);
  net->to(accelerator.device(), at::kDouble);
  torch::optim::SGD sgd(net->parameters(), descent());
  const int64_t rows = kRowsOfStep * accelerator.num_processes();
  for (int step = 0; step < kSteps; ++step) {
    const Problem all = problem(100 + step, rows).rows(0, rows, like);
    sgd.zero_grad();
    torch::mse_loss(net->forward(all.input), all.target).backward();
    sgd.step();
  }
  return flat(net->parameters());
}

// The same by all processes, each with its own rows, in `micro_batches` parts a step.
at::Tensor trained_together(Accelerator& accelerator, int64_t micro_batches) {
  const at::TensorOptions like = at::TensorOptions(accelerator.device()).dtype(at::kDouble);
  // Other weights on each rank: preparing the model gives all of them those of rank 0.
  auto net = network(kSeed + static_cast<uint64_t>(accelerator.process_index()));
  net->to(at::kDouble);
  torch::optim::SGD sgd(net->parameters(), descent());
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const int64_t rows = kRowsOfStep / micro_batches;
  for (int step = 0; step < kSteps; ++step) {
    const Problem all = problem(100 + step, kRowsOfStep * accelerator.num_processes());
    for (int64_t part = 0; part < micro_batches; ++part) {
      const auto window = accelerator.accumulate(model);
      const Problem own =
          all.rows(accelerator.process_index() * kRowsOfStep + part * rows, rows, like);
      accelerator.backward(torch::mse_loss(model(own.input), own.target));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return flat(net->parameters());
}

void expect_agreement(Accelerator& accelerator, const at::Tensor& parameters) {
  expect_same("parameters of this rank, against those of rank 0", parameters,
              accelerator.broadcast(parameters));
}

Findings check_ddp(Accelerator& accelerator) {
  const at::Tensor parameters = trained_together(accelerator, 1);
  expect_near("parameters after " + std::to_string(kSteps) + " steps", parameters,
              trained_alone(accelerator), kTolerance);
  expect_agreement(accelerator, parameters);
  return {.detail = accelerator.strategy_name() + " equals one process with " +
                    std::to_string(accelerator.num_processes()) + " times the batch"};
}

Findings check_accumulation(Accelerator& accelerator) {
  const int64_t micro_batches = accelerator.gradient_accumulation_steps();
  const at::Tensor parameters = trained_together(accelerator, micro_batches);
  expect_near("parameters after " + std::to_string(kSteps) + " windows", parameters,
              trained_alone(accelerator), kTolerance);
  expect_agreement(accelerator, parameters);
  return {.detail = std::to_string(micro_batches) + " micro-batches equal one large batch"};
}

AcceleratorOptions accumulating(int64_t steps) {
  AcceleratorOptions options = plain_options();
  options.gradient_accumulation.steps = steps;
  return options;
}

}  // namespace

std::vector<Check> training_checks() {
  return {{"training", "several processes equal one", plain_options(), check_ddp},
          {"training", "gradient accumulation", accumulating(4), check_accumulation}};
}

}  // namespace accelerate::selftest
