// Steps as CUDA graphs. Skipped, visibly, where there is no GPU.
#include <accelerate/accelerate.h>
#include <accelerate/step_capture.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "cuda/lone_gpu.h"
#include "cuda/small_net.h"

namespace accelerate {
namespace {

using test::Rank;
using Tensors = std::vector<at::Tensor>;

struct CaptureTest : test::LoneRank {};

using Net = test::SmallNet;

template <class Optimizer = torch::optim::AdamW>
std::vector<float> losses_of(bool captured, MixedPrecision precision, int accumulation) {
  Accelerator accelerator({.mixed_precision = precision,
                           .grad_scaler = {.init_scale = 1024},
                           .gradient_accumulation = {.steps = accumulation}});
  torch::manual_seed(3);
  Net net;
  Optimizer own(net->parameters(), 1e-2);
  auto schedule =
      get_scheduler("linear", own, {.warmup_steps = 4, .training_steps = 40 / accumulation});
  auto [model, optimizer, scheduler] = accelerator.prepare(net, own, schedule);
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
  auto replayed = accelerator.capture(step);
  torch::manual_seed(4);
  std::vector<float> losses;
  for (int i = 0; i < 40; ++i) {
    // The last ones are of another shape.
    const int64_t rows = i < 30 ? 16 : 12;
    const Tensors batch{torch::randn({rows, 8}).to(accelerator.device()),
                        torch::randint(3, {rows}).to(accelerator.device())};
    if (captured) {
      losses.push_back(replayed(batch)[0].template item<float>());
    } else if (accumulation > 1) {
      const auto window = accelerator.accumulate();
      losses.push_back(step(batch)[0].template item<float>());
    } else {
      losses.push_back(step(batch)[0].template item<float>());
    }
  }
  EXPECT_EQ(optimizer.step_count(), 40 / accumulation);
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
    for (const auto precision :
         {MixedPrecision::kNo, MixedPrecision::kBf16, MixedPrecision::kFp16}) {
      for (const int accumulation : {1, 2}) {
        const auto eager = losses_of(false, precision, accumulation);
        const auto replayed = losses_of(true, precision, accumulation);
        for (size_t i = 0; i < eager.size(); ++i) {
          EXPECT_NEAR(eager[i], replayed[i], 2e-3) << i << " accumulation " << accumulation
                                                   << " precision " << static_cast<int>(precision);
        }
      }
    }
  });
}

TEST_F(CaptureTest, ReplayedStepsOfSgdHaveTheLossesOfEagerOnes) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    for (const auto precision : {MixedPrecision::kNo, MixedPrecision::kFp16}) {
      const auto eager = losses_of<torch::optim::SGD>(false, precision, 1);
      const auto replayed = losses_of<torch::optim::SGD>(true, precision, 1);
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(eager[i], replayed[i], 2e-3) << i;
    }
  });
}

// One weight, whose gradient is the mean of the batch; batches that hold infinity overflow.
struct OneWeight {
  explicit OneWeight(bool captured, std::optional<FlatOptions> flat)
      : accelerator({.mixed_precision = MixedPrecision::kFp16,
                     .grad_scaler = {.init_scale = 1024, .growth_interval = 4},
                     .flat = flat}) {
    torch::nn::init::constant_(net->weight, 0.5);
    optimizer = std::make_shared<torch::optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.1).weight_decay(0));
    Scheduler schedule(*optimizer, lambda_lr([](int64_t step) { return 1.0 / (1.0 + step); }));
    auto [model, prepared, scheduler] = accelerator.prepare(net, optimizer, schedule);
    auto step = [this, model = model, prepared = prepared,
                 scheduler = scheduler](const Tensors& in) mutable -> Tensors {
      accelerator.backward((model(in[0]) * in[0]).mean());
      accelerator.clip_grad_norm_(model->parameters(), 10.0);
      prepared.step();
      scheduler.step();
      prepared.zero_grad();
      return {net->weight.detach().clone()};
    };
    auto replayed = accelerator.capture(step);
    for (int i = 0; i < 16; ++i) {
      at::Tensor batch =
          torch::full({4, 1}, 0.1 * (i + 1), at::TensorOptions(accelerator.device()));
      if (i == 1 || i == 6 || i == 7 || i == 12) batch[2] = INFINITY;
      const Tensors out = captured ? replayed({batch}) : step({batch});
      weights.push_back(out[0].item<float>());
      scales.push_back(accelerator.scaler()->scale_factor());
      skipped.push_back(accelerator.optimizer_step_was_skipped());
      rates.push_back(scheduler.last_lr()[0]);
      counts.push_back(prepared.step_count());
    }
    EXPECT_EQ(replayed.fallback_reason(), "");
    if (captured) {
      EXPECT_EQ(replayed.replays(), 13);
    }
  }

  Accelerator accelerator;
  torch::nn::Linear net{torch::nn::LinearOptions(1, 1).bias(false)};
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::vector<float> weights;
  std::vector<double> scales, rates;
  std::vector<bool> skipped;
  std::vector<int64_t> counts;
};

TEST_F(CaptureTest, OverflowsUnderFp16AreSkippedInsideOfTheGraph) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    for (const auto& flat :
         {std::optional<FlatOptions>(), std::optional(FlatOptions{.dtype = at::kFloat}),
          std::optional(FlatOptions{.dtype = at::kHalf})}) {
      const OneWeight eager(false, flat);
      const OneWeight replayed(true, flat);
      EXPECT_EQ(replayed.weights, eager.weights) << flat.has_value();
      EXPECT_EQ(replayed.scales, eager.scales);
      EXPECT_EQ(replayed.rates, eager.rates);
      EXPECT_EQ(replayed.counts, eager.counts);
      std::vector<bool> bad(16);
      for (const size_t i : {1, 6, 7, 12}) bad[i] = true;
      EXPECT_EQ(replayed.skipped, bad);
      EXPECT_EQ(replayed.counts.back(), 12);
    }
  });
}

// Gradients are let go of between the steps, as loops without capture do it.
TEST_F(CaptureTest, GradientsThatWereLetGoOfComeBackAsZeros) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    torch::nn::Linear net(3, 1);
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    auto step = accelerator.capture([&, &model = model](const Tensors& in) -> Tensors {
      accelerator.backward(model(in[0]).sum());
      return {};
    });
    for (int i = 0; i < 8; ++i) {
      optimizer.zero_grad();
      step({torch::ones({2, 3}, accelerator.device())});
      EXPECT_EQ(net->weight.grad().sum().item<float>(), 6.0F) << i;
    }
    EXPECT_EQ(step.replays(), 5);
  });
}

// Moments that were loaded lie elsewhere than those that the graphs were recorded with.
TEST_F(CaptureTest, StepsAfterLoadStateAreThoseOfTheLoadedState) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    std::string pattern = (std::filesystem::temp_directory_path() / "capture-XXXXXX").string();
    const std::filesystem::path folder = mkdtemp(pattern.data());
    for (const bool momentum : {false, true}) {
      Accelerator accelerator;
      torch::manual_seed(3);
      Net net;
      std::shared_ptr<torch::optim::Optimizer> own;
      if (momentum) {
        own = std::make_shared<torch::optim::SGD>(net->parameters(),
                                                  torch::optim::SGDOptions(0.1).momentum(0.9));
      } else {
        own = std::make_shared<torch::optim::AdamW>(net->parameters(), 1e-2);
      }
      auto [model, optimizer] = accelerator.prepare(net, own);
      auto step = accelerator.capture(
          [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
            optimizer.zero_grad();
            const at::Tensor loss = torch::nn::functional::cross_entropy(model(in[0]), in[1]);
            accelerator.backward(loss);
            optimizer.step();
            return {loss.detach()};
          });
      torch::manual_seed(4);
      const Tensors batch{torch::randn({16, 8}).to(accelerator.device()),
                          torch::randint(3, {16}).to(accelerator.device())};
      const auto losses = [&] {
        std::vector<float> values;
        for (int i = 0; i < 8; ++i) values.push_back(step(batch)[0].item<float>());
        return values;
      };
      losses();
      EXPECT_EQ(step.graphs(), 1u);
      accelerator.save_state(folder / "state");
      const auto expected = losses();
      accelerator.load_state(folder / "state");
      const auto resumed = losses();
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(resumed[i], expected[i], 1e-5) << i;
      EXPECT_EQ(step.fallback_reason(), "");
      EXPECT_EQ(step.graphs(), 1u);
      // A state that was loaded without the accelerator.
      load_optimizer_state(*own, optimizer_state(*own));
      const int64_t replays = step.replays();
      step(batch);
      EXPECT_EQ(step.replays(), replays);
    }
    std::filesystem::remove_all(folder);
  });
}

// Both common orders of the calls, in windows: zero_grad() before backward() throws the gradients
// of the last window away in the first micro-batch, and none in the others.
TEST_F(CaptureTest, ZeroGradFirstInWindowsHasTheLossesOfEagerSteps) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    const auto losses = [](bool captured) {
      Accelerator accelerator({.gradient_accumulation = {.steps = 3}});
      torch::manual_seed(3);
      Net net;
      torch::optim::AdamW adamw(net->parameters(), 1e-2);
      auto [model, optimizer] = accelerator.prepare(net, adamw);
      const auto body = [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
        optimizer.zero_grad();
        const at::Tensor loss = torch::nn::functional::cross_entropy(model(in[0]), in[1]);
        accelerator.backward(loss);
        optimizer.step();
        return {loss.detach()};
      };
      auto step = accelerator.capture(body);
      torch::manual_seed(4);
      std::vector<float> values;
      for (int i = 0; i < 36; ++i) {
        const Tensors batch{torch::randn({16, 8}).to(accelerator.device()),
                            torch::randint(3, {16}).to(accelerator.device())};
        if (captured) {
          values.push_back(step(batch)[0].template item<float>());
        } else {
          const auto window = accelerator.accumulate(model);
          values.push_back(body(batch)[0].template item<float>());
        }
      }
      EXPECT_EQ(optimizer.step_count(), 12);
      if (captured) {
        EXPECT_EQ(step.fallback_reason(), "");
        EXPECT_EQ(step.graphs(), 3u);
        EXPECT_GT(step.replays(), 15);
      }
      return values;
    };
    const auto eager = losses(false);
    const auto replayed = losses(true);
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(eager[i], replayed[i], 2e-3) << i;
  });
}

TEST_F(CaptureTest, DropoutStaysRandom) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = accelerator.capture(
        [&](const Tensors& in) -> Tensors { return {torch::dropout(in[0], 0.5, true).sum()}; });
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
    auto step = accelerator.capture(
        [&](const Tensors& in) -> Tensors { return {in[0] * in[0].sum().item<float>()}; });
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
    auto step = accelerator.capture([&](const Tensors& in) -> Tensors { return {in[0].sum()}; },
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

}  // namespace
}  // namespace accelerate
