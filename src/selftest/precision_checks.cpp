// Mixed precision.
#include <torch/torch.h>

#include <limits>
#include <optional>

#include "selftest/expect.h"
#include "selftest/network.h"

namespace accelerate::selftest {
namespace {

constexpr int64_t kPrecisionRows = 8;

// Trains some steps; after them the parameters must be float, finite and equal on all ranks.
void expect_training(Accelerator& accelerator) {
  auto net = network(7);
  torch::optim::SGD sgd(net->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::TensorOptions like = at::TensorOptions(accelerator.device()).dtype(at::kFloat);
  const Problem own = problem(5, kPrecisionRows * accelerator.num_processes())
                          .rows(accelerator.process_index() * kPrecisionRows, kPrecisionRows, like);
  const auto loss = [&, &model = model] { return torch::mse_loss(model(own.input), own.target); };
  const double before = accelerator.reduce(loss().detach(), "mean").item<double>();
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    accelerator.backward(loss());
    optimizer.step();
  }
  const double after = accelerator.reduce(loss().detach(), "mean").item<double>();
  expect_equal("type of the parameters", net->parameters()[0].scalar_type(), at::kFloat);
  expect_true("the loss falls in 20 steps, from " + show(before) + "; it is " + show(after),
              after < before);
  const at::Tensor parameters = flat(net->parameters());
  expect_same("parameters of this rank, against those of rank 0", parameters,
              accelerator.broadcast(parameters));
}

void expect_autocast(Accelerator& accelerator, at::ScalarType type) {
  const at::TensorOptions like = at::TensorOptions(accelerator.device()).dtype(at::kFloat);
  const at::Tensor left = torch::ones({4, 4}, like);
  {
    const auto autocast = accelerator.autocast();
    expect_equal("type of a matrix product inside autocast", torch::mm(left, left).scalar_type(),
                 type);
  }
  expect_equal("type of a matrix product outside of it", torch::mm(left, left).scalar_type(),
               at::kFloat);
}

Findings check_bf16(Accelerator& accelerator) {
  expect_autocast(accelerator, at::kBFloat16);
  expect_training(accelerator);
  return {.detail = "autocast on " + accelerator.device().str()};
}

Findings check_fp16(Accelerator& accelerator) {
  expect_autocast(accelerator, at::kHalf);
  expect_training(accelerator);
  expect_true("fp16 has a gradient scaler", accelerator.scaler() != nullptr);

  // Gradients that overflow on the last rank alone.
  auto net = network(7);
  torch::optim::SGD sgd(net->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const double scale = accelerator.scaler()->scale_factor();
  const at::Tensor parameters = flat(net->parameters());
  const at::TensorOptions like = at::TensorOptions(accelerator.device()).dtype(at::kFloat);
  at::Tensor loss = model(problem(5, kPrecisionRows).rows(0, kPrecisionRows, like).input).sum();
  if (accelerator.state().is_last_process()) loss = loss * std::numeric_limits<float>::infinity();
  accelerator.backward(loss);
  optimizer.step();
  expect_true("a step whose gradients overflow is skipped",
              accelerator.optimizer_step_was_skipped());
  expect_same("parameters after the skipped step", flat(net->parameters()), parameters);
  expect_true("the scale falls after an overflow", accelerator.scaler()->scale_factor() < scale);
  return {.detail = "autocast and scaled losses on " + accelerator.device().str()};
}

// What programs of this set-up train in: one that this machine has not fails here as it would
// there.
Findings check_configured(Accelerator& accelerator) {
  expect_training(accelerator);
  return {.detail = "mixed precision " + std::string(accelerator.mixed_precision().name()) +
                    " on " + accelerator.device().str()};
}

// Nothing: what the environment says.
AcceleratorOptions in(std::optional<MixedPrecision> precision) {
  AcceleratorOptions options = plain_options();
  options.mixed_precision = precision;
  options.grad_scaler.init_scale = 1024;
  return options;
}

}  // namespace

std::vector<Check> precision_checks() {
  return {{"precision", "bf16", in(MixedPrecision::kBf16), check_bf16},
          {"precision", "fp16 with scaled losses", in(MixedPrecision::kFp16), check_fp16},
          {"precision", "as configured", in(std::nullopt), check_configured}};
}

}  // namespace accelerate::selftest
