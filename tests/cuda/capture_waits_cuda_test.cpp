// Steps that never wait for the GPU, recorded and not. Skipped, visibly, where there is none.
#include <accelerate/accelerate.h>
#include <accelerate/ops.h>
#include <accelerate/step_capture.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "cuda/lone_gpu.h"
#include "cuda/small_net.h"
#include "device/cuda_plugin.h"

namespace accelerate {
namespace {

using test::Rank;
using Tensors = std::vector<at::Tensor>;
using Net = test::SmallNet;

struct CaptureWaits : test::LoneRank {};

void train_without_waiting(MixedPrecision precision) {
  Accelerator accelerator({.mixed_precision = precision});
  Net net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto schedule = get_scheduler("linear", adamw, {.warmup_steps = 4, .training_steps = 40});
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, schedule);
  Net other;
  Accelerator with_flat({.flat = FlatOptions{}});
  torch::optim::AdamW other_adamw(other->parameters(), 1e-3);
  auto [flat_model, flat_optimizer] = with_flat.prepare(other, other_adamw);
  const at::Tensor x = torch::randn({16, 8}, accelerator.device());
  const at::Tensor y =
      torch::randint(3, {16}, at::TensorOptions(at::kLong).device(accelerator.device()));
  const at::Tensor table =
      torch::randn({48, 8}, at::TensorOptions(at::kBFloat16).device(accelerator.device()))
          .requires_grad_();
  for (int i = 0; i < 5; ++i) {
    if (i == 2) device::cuda_plugin()->forbid_waiting(true);
    optimizer.zero_grad();
    accelerator.backward(torch::nn::functional::cross_entropy(model(x), y));
    accelerator.clip_grad_norm_(model->parameters(), 0.5);
    optimizer.step();
    scheduler.step();
    flat_optimizer.zero_grad();
    with_flat.backward(flat_model(x.to(at::kBFloat16)).sum());
    with_flat.clip_grad_norm_(flat_model->parameters(), 1.0);
    flat_optimizer.param_groups()[0].options().set_lr(1e-3 / (i + 1));
    flat_optimizer.step();
    ops::linear_cross_entropy(x.to(at::kBFloat16), table, y).backward();
  }
  EXPECT_ANY_THROW(x.sum().item<float>());  // the check is on
  device::cuda_plugin()->forbid_waiting(false);
}

// With a schedule, clipping and accumulation; under fp16 a replay waits for the last but one.
TEST_F(CaptureWaits, ReplaysNeverWaitForTheGpu) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator(
        {.mixed_precision = MixedPrecision::kBf16, .gradient_accumulation = {.steps = 2}});
    Net net;
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto schedule = get_scheduler("linear", adamw, {.warmup_steps = 4, .training_steps = 40});
    auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, schedule);
    auto step = accelerator.capture(
        [&, &model = model, &optimizer = optimizer, &scheduler = scheduler](const Tensors& in) {
          const at::Tensor loss = model(in[0]).square().mean();
          accelerator.backward(loss);
          if (accelerator.sync_gradients()) {
            accelerator.clip_grad_norm_(model->parameters(), 0.5);
          }
          optimizer.step();
          scheduler.step();
          optimizer.zero_grad();
          return Tensors{loss.detach()};
        });
    const at::Tensor x = torch::randn({16, 8}, accelerator.device());
    for (int i = 0; i < 10; ++i) step({x});
    EXPECT_EQ(step.graphs(), 2u);
    device::cuda_plugin()->forbid_waiting(true);
    for (int i = 0; i < 8; ++i) EXPECT_NO_THROW(step({x})) << i;
    device::cuda_plugin()->forbid_waiting(false);
    EXPECT_EQ(step.replays(), 12);
  });
}

TEST_F(CaptureWaits, TrainingStepsNeverWaitForTheGpu) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    train_without_waiting(MixedPrecision::kBf16);
    train_without_waiting(MixedPrecision::kFp16);
  });
}

}  // namespace
}  // namespace accelerate
