// Recorded steps of flat parameters, replayed without a graph.
#include <ATen/ATen.h>

#include "core/capture_warmup.h"
#include "device/replay_actions.h"
#include "multiproc/strategy/flat_branches.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatReplays : Ranks {};

// A replay runs no forward pass that would look.
TEST_F(FlatReplays, ValuesThatAreWrittenBetweenReplaysAreTakenOver) {
  run(1, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    const auto step = [&] {
      loop.optimizer.zero_grad();
      loop.accelerator.backward(loop.model(ones({2, 6})).square().sum());
    };
    step();
    device::ReplayActions actions;
    {
      const device::ReplayActions::Scope recording(actions);
      step();
    }
    actions.run_before();
    actions.run_after();
    const auto master_of = [&](const at::Tensor& parameter) {
      return loop.unit().master(*loop.unit().find(parameter)).detach();
    };
    const at::Tensor& bias = loop.net->second->bias;
    const at::Tensor other = master_of(loop.net->first->bias).clone();
    {
      const torch::NoGradGuard no_grad;
      bias.fill_(0.75);
    }
    ASSERT_TRUE(actions.holds());
    actions.run_before();
    EXPECT_TRUE(master_of(bias).eq(0.75).all().item<bool>());
    EXPECT_TRUE(torch::equal(master_of(loop.net->first->bias), other));
    actions.run_after();
    loop.net->to(at::kFloat);
    EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("flat vector"));
  });
}

// Each replay would write, and the masters know of the first write alone.
TEST_F(FlatReplays, ARecordedStepThatWritesToParametersIsRefused) {
  run(1, [](const Rank&) {
    Accelerator accelerator(flat_in_bf16());
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    device::ReplayActions actions;
    {
      const device::ReplayActions::Scope recording(actions);
      accelerator.backward(model(ones({2, 6})).square().sum());
      const torch::NoGradGuard no_grad;
      net->first->weight.clamp_(-0.1, 0.1);
    }
    for (int call = 0; call < 2; ++call) {
      EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("writes to parameters"));
    }
    accelerator.free_memory();
    EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("was released"));
  });
}

// On a rank that does not reach all, which of them others reach is not known inside a graph.
TEST_F(FlatReplays, APassThatReachesAPartIsNotRecordedOnSeveralRanks) {
  run(2, [](const Rank&) {
    Accelerator accelerator(plain_and_flat()[1]);
    auto net = fresh_branches();
    auto model = accelerator.prepare(net);
    device::ReplayActions actions;
    const device::KeptGradients kept;
    const device::ReplayActions::Scope recording(actions);
    accelerator.backward(model(ones({2, 6}), "abc").sum());
    model.zero_grad();
    EXPECT_THAT(usage_error([&] {
                  accelerator.backward(model(ones({2, 6}), "ac").sum());
                }),
                HasSubstr("does not reach 'b."));
  });
}

// Where hooks are made anew in each pass.
TEST_F(FlatReplays, PartsThatAreFrozenLaterNeedNoHooks) {
  run(2, [](const Rank&) {
    FlatBranches it(plain_and_flat()[1]);
    const std::vector<at::Tensor> parameters = it.net->b->parameters();
    const device::KeptGradients kept;
    std::vector<double> frozen;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        frozen = flat(parameters);
        for (const at::Tensor& parameter : parameters) parameter.set_requires_grad(false);
      }
      it.backward(step, "abc");
      it.step();
    }
    EXPECT_EQ(flat(parameters), frozen);
  });
}

// The update of a recording is that of the parameters that had gradients then.
TEST_F(FlatReplays, AReplayWhoseGradientsWouldBeOthersDoesNotHold) {
  run(1, [](const Rank&) {
    FlatBranches it(plain_and_flat()[1]);
    const auto pass = [&](const std::string& used) { it.backward(0, used); };
    const device::KeptGradients kept;
    for (const char* used : {"abc", "abc", "a"}) {  // what is recorded has been made before
      pass(used);
      it.step();
    }
    device::ReplayActions adds;  // to what is there
    {
      const device::ReplayActions::Scope recording(adds);
      pass("a");
      it.step();
    }
    device::ReplayActions starts_anew;
    {
      const device::ReplayActions::Scope recording(starts_anew);
      it.optimizer.zero_grad();
      pass("a");
      it.optimizer.step();
    }
    EXPECT_EQ(present(*it.net), (std::vector<bool>{true, true, false, false, false, false}));
    it.optimizer.zero_grad();
    EXPECT_TRUE(adds.holds());
    EXPECT_TRUE(starts_anew.holds());
    pass("b");
    EXPECT_FALSE(adds.holds());
    EXPECT_TRUE(starts_anew.holds());
    starts_anew.run_before();
    starts_anew.run_after();
    EXPECT_EQ(present(*it.net), (std::vector<bool>{true, true, false, false, false, false}));
  });
}

// Of libtorch's reducer, which averages buckets that it rebuilds first.
TEST(CaptureWarmup, StepsOfSeveralRanksWarmUpAsTheirBucketsNeed) {
  EXPECT_EQ(warmup_steps(3, /*ranks=*/1, /*flat=*/false), 3);
  EXPECT_EQ(warmup_steps(3, /*ranks=*/2, /*flat=*/false), 11);
  EXPECT_EQ(warmup_steps(20, /*ranks=*/2, /*flat=*/false), 20);
  EXPECT_EQ(warmup_steps(3, /*ranks=*/2, /*flat=*/true), 3);
}

}  // namespace
}  // namespace accelerate::test
