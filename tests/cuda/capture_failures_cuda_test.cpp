// Steps that cannot be recorded, or throw while they are, and inputs out of the ordinary. Skipped,
// visibly, where there is no GPU.
#include <accelerate/accelerate.h>
#include <accelerate/step_capture.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <stdexcept>

#include "cuda/lone_gpu.h"
#include "multiproc/state_folder.h"

namespace accelerate {
namespace {

using test::Rank;
using Tensors = std::vector<at::Tensor>;

struct CaptureFailures : test::LoneRank {};

// Reads the device, and draws: what the driver refuses must not be left half recorded.
TEST_F(CaptureFailures, RandomNumbersGoOnAfterAStepThatCouldNotBeRecorded) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    const at::Tensor ones = torch::ones({4096}, accelerator.device());
    auto reading = accelerator.capture([&](const Tensors& in) -> Tensors {
      const at::Tensor kept = torch::dropout(in[0], 0.5, true);
      return {kept * kept.sum().item<float>()};
    });
    for (int i = 0; i < 6; ++i) EXPECT_NO_THROW(reading({ones})) << i;
    EXPECT_NE(reading.fallback_reason(), "");
    auto drawing = accelerator.capture(
        [&](const Tensors& in) -> Tensors { return {torch::dropout(in[0], 0.5, true).sum()}; });
    for (int i = 0; i < 6; ++i) EXPECT_GT(drawing({ones})[0].item<float>(), 0.0F) << i;
    EXPECT_EQ(drawing.fallback_reason(), "");
    EXPECT_EQ(drawing.replays(), 3);
  });
}

TEST_F(CaptureFailures, WhatTheStepItselfThrowsIsPassedOnAndTheNextCallRecords) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    int calls = 0;
    auto step = accelerator.capture([&](const Tensors& in) -> Tensors {
      EXPECT_EQ(in.size(), 1u);
      if (++calls == 4) throw std::runtime_error("of the step");
      return {in[0] * 2};
    });
    const at::Tensor ones = torch::ones({4}, accelerator.device());
    for (int i = 0; i < 3; ++i) step({ones});
    EXPECT_THROW(step({ones}), std::runtime_error);
    EXPECT_EQ(step({ones})[0].sum().item<float>(), 8.0F);
    EXPECT_EQ(step.fallback_reason(), "");
    EXPECT_EQ(step.replays(), 1);
  });
}

// Gradients that a failed recording has made hold whatever the memory held.
TEST_F(CaptureFailures, GradientsOfAStepThatCouldNotBeRecordedAreForgotten) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    torch::nn::Linear net(3, 1);
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    auto step = accelerator.capture([&, &model = model](const Tensors& in) -> Tensors {
      const at::Tensor loss = model(in[0]).sum();
      accelerator.backward(loss);
      (void)loss.item<float>();
      return {};
    });
    for (int i = 0; i < 6; ++i) {
      optimizer.zero_grad();
      step({torch::ones({2, 3}, accelerator.device())});
      EXPECT_EQ(net->weight.grad().sum().item<float>(), 6.0F) << i;
    }
    EXPECT_NE(step.fallback_reason(), "");
  });
}

// Takes a state, or fails where the load cannot be taken back any more.
struct BreakingLoad {
  torch::nn::Linear net{nullptr};
  StateDict state_dict() const { return {{"value", 1}}; }
  void load_state_dict(const StateDict&) {
    net->weight.set_data(torch::zeros({1}, net->weight.device()));
  }
};

TEST_F(CaptureFailures, NothingIsReplayedAfterALoadThatFailedHalfway) {
  const test::StateFolder folder;
  alone([&](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    torch::nn::Linear net(3, 1);
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    BreakingLoad breaking{.net = net};
    accelerator.register_for_checkpointing(breaking);
    auto step = accelerator.capture(
        [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
          const at::Tensor loss = model(in[0]).sum();
          accelerator.backward(loss);
          optimizer.step();
          optimizer.zero_grad();
          return {loss.detach()};
        });
    const Tensors batch{torch::ones({2, 3}, accelerator.device())};
    for (int i = 0; i < 5; ++i) step(batch);
    ASSERT_GT(step.replays(), 0);
    accelerator.save_state(folder / "state");
    const int64_t replays = step.replays();
    EXPECT_THROW(accelerator.load_state(folder / "state"), CheckpointError);
    EXPECT_THROW(step(batch), UsageError);
    EXPECT_EQ(step.replays(), replays);
  });
}

TEST_F(CaptureFailures, InputsMayBeExpandedOrMissing) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = accelerator.capture([&](const Tensors& in) -> Tensors {
      return {in[1].defined() ? in[0].sum() + in[1].sum() : in[0].sum()};
    });
    for (int i = 0; i < 6; ++i) {
      const at::Tensor value = torch::full({1}, float(i), accelerator.device());
      EXPECT_EQ(step({value.expand({4}), {}})[0].item<float>(), 4.0F * float(i));
      EXPECT_EQ(step({value.expand({4}), value})[0].item<float>(), 5.0F * float(i));
    }
    EXPECT_EQ(step.graphs(), 2u);
    EXPECT_EQ(step.replays(), 6);
  });
}

TEST_F(CaptureFailures, AStepWhoseInputNeedsAGradientRunsAsItIs) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto step = accelerator.capture([&](const Tensors& in) -> Tensors {
      in[0].square().sum().backward();
      return {};
    });
    for (int i = 0; i < 5; ++i) {
      const at::Tensor input = torch::ones({2}, accelerator.device()).requires_grad_();
      step({input});
      EXPECT_EQ(input.grad().sum().item<float>(), 4.0F);
    }
    EXPECT_THAT(step.fallback_reason(), testing::HasSubstr("needs a gradient"));
  });
}

}  // namespace
}  // namespace accelerate
