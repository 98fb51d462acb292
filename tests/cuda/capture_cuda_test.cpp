// Steps as CUDA graphs, and steps that never wait for the GPU. Skipped, visibly, where there is
// none.
#include <accelerate/accelerate.h>
#include <accelerate/flat_parameters.h>
#include <accelerate/ops.h>
#include <accelerate/step_capture.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "compat/cuda_plugin.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using test::Rank;
using test::Ranks;
using Tensors = std::vector<at::Tensor>;

#define REQUIRE_GPU()                                                                 \
  if (compat::cuda_plugin() == nullptr || compat::cuda_plugin()->device_count() == 0) \
  GTEST_SKIP() << "no GPU"

struct CaptureTest : Ranks {
  void alone(const test::RankBody& body) {
    run(1, body, {.deadline = std::chrono::seconds(120), .launched = false});
  }
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{8, 32};
  torch::nn::Linear second{32, 3};
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
};
TORCH_MODULE(Net);

std::vector<float> losses_of(bool captured, MixedPrecision precision, int accumulation) {
  Accelerator accelerator(
      {.mixed_precision = precision, .gradient_accumulation = {.steps = accumulation}});
  torch::manual_seed(3);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto schedule =
      get_scheduler("linear", adamw, {.warmup_steps = 4, .training_steps = 40 / accumulation});
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, schedule);
  const auto step = [&, &model = model, &optimizer = optimizer,
                     &scheduler = scheduler](const Tensors& in) -> Tensors {
    const at::Tensor loss = torch::nn::functional::cross_entropy(model(in[0]), in[1]);
    accelerator.backward(loss);
    if (accelerator.sync_gradients()) {
      accelerator.clip_grad_norm_(model->parameters(), 0.5);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
    }
    return {loss.detach()};
  };
  auto replayed = capture(accelerator, step);
  torch::manual_seed(4);
  std::vector<float> losses;
  for (int i = 0; i < 40; ++i) {
    // The last ones are of another shape.
    const int64_t rows = i < 30 ? 16 : 12;
    const Tensors batch{torch::randn({rows, 8}).to(accelerator.device()),
                        torch::randint(3, {rows}).to(accelerator.device())};
    if (captured) {
      losses.push_back(replayed(batch)[0].item<float>());
    } else if (accumulation > 1) {
      const auto window = accelerator.accumulate();
      losses.push_back(step(batch)[0].item<float>());
    } else {
      losses.push_back(step(batch)[0].item<float>());
    }
  }
  if (captured) {
    EXPECT_EQ(replayed.fallback_reason(), "");
    EXPECT_EQ(replayed.graphs(), accumulation > 1 ? 4u : 2u);
    EXPECT_GT(replayed.replays(), 20);
  }
  return losses;
}

TEST_F(CaptureTest, ReplayedStepsHaveTheLossesOfEagerOnes) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    for (const auto precision : {MixedPrecision::kNo, MixedPrecision::kBf16}) {
      for (const int accumulation : {1, 2}) {
        const auto eager = losses_of(false, precision, accumulation);
        const auto replayed = losses_of(true, precision, accumulation);
        for (size_t i = 0; i < eager.size(); ++i) {
          EXPECT_NEAR(eager[i], replayed[i], 2e-3) << i << " accumulation " << accumulation;
        }
      }
    }
  });
}

TEST_F(CaptureTest, DropoutStaysRandom) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = capture(accelerator, [&](const Tensors& in) -> Tensors {
      return {torch::dropout(in[0], 0.5, true).sum()};
    });
    const at::Tensor ones = torch::ones({4096}, accelerator.device());
    std::set<float> seen;
    for (int i = 0; i < 13; ++i) seen.insert(step({ones})[0].item<float>());
    EXPECT_EQ(step.replays(), 10);
    EXPECT_GT(seen.size(), 9u);
  });
}

TEST_F(CaptureTest, AStepThatReadsTheDeviceRunsAsItIs) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = capture(accelerator, [&](const Tensors& in) -> Tensors {
      return {in[0] * in[0].sum().item<float>()};
    });
    const at::Tensor ones = torch::ones({4}, accelerator.device());
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step({ones})[0].sum().item<float>(), 16.0F);
    EXPECT_NE(step.fallback_reason(), "");
    EXPECT_EQ(step.replays(), 0);
  });
}

TEST_F(CaptureTest, OldKindsOfStepsMakeRoomForNewOnes) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = capture(accelerator, [&](const Tensors& in) -> Tensors { return {in[0].sum()}; },
                        {.warmup_steps = 1, .most_graphs = 2});
    for (int round = 0; round < 3; ++round) {
      for (const int64_t size : {2, 3, 4}) {
        const at::Tensor ones = torch::ones({size}, accelerator.device());
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(step({ones})[0].item<float>(), static_cast<float>(size));
        }
      }
    }
    EXPECT_EQ(step.graphs(), 2u);
  });
}

TEST_F(CaptureTest, TrainingStepsNeverWaitForTheGpu) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator({.mixed_precision = MixedPrecision::kBf16});
    Net net;
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto schedule = get_scheduler("linear", adamw, {.warmup_steps = 4, .training_steps = 40});
    auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, schedule);
    Net other;
    other->to(accelerator.device());
    FlatAdamW flat(std::make_shared<FlatParameters>(*other), {.max_norm = 1.0});
    const at::Tensor x = torch::randn({16, 8}, accelerator.device());
    const at::Tensor y =
        torch::randint(3, {16}, at::TensorOptions(at::kLong).device(accelerator.device()));
    const at::Tensor table =
        torch::randn({48, 8}, at::TensorOptions(at::kBFloat16).device(accelerator.device()))
            .requires_grad_();
    for (int i = 0; i < 5; ++i) {
      if (i == 2) compat::cuda_plugin()->forbid_waiting(true);
      optimizer.zero_grad();
      accelerator.backward(torch::nn::functional::cross_entropy(model(x), y));
      accelerator.clip_grad_norm_(model->parameters(), 0.5);
      optimizer.step();
      scheduler.step();
      flat.zero_grad();
      other(x.to(at::kBFloat16)).sum().backward();
      flat.param_groups()[0].options().set_lr(1e-3 / (i + 1));
      flat.step();
      ops::linear_cross_entropy(x.to(at::kBFloat16), table, y).backward();
    }
    EXPECT_ANY_THROW(x.sum().item<float>());  // the check is on
    compat::cuda_plugin()->forbid_waiting(false);
  });
}

}  // namespace
}  // namespace accelerate
