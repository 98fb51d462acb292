// Steps that cannot be recorded run as they are. What is recorded is tested on a GPU.
#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

using Tensors = StepCapture::Tensors;

struct CaptureOnCpu : Ranks {};

TEST_F(CaptureOnCpu, RunsTheStepAndOpensItsWindows) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = accumulating({.steps = 3});
    options.cpu = true;
    const auto trained = [&](bool captured) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      net->to(at::kCPU);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      int calls = 0;
      const auto step = [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
        ++calls;
        const at::Tensor loss = loss_of(model(in[0]), in[1]);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        return {loss.detach()};
      };
      auto replayed = accelerator.capture(step);
      EXPECT_EQ(replayed.fallback_reason(), "there is no GPU");
      for (int i = 0; i < 6; ++i) {
        const StepData data = host_data_of_step(i, 2 * kRows);
        const Tensors batch{rows_of(data.input, rank.rank), rows_of(data.target, rank.rank)};
        if (captured) {
          EXPECT_EQ(replayed(batch).size(), 1U);
        } else {
          const auto micro_batch = accelerator.accumulate(model);
          step(batch);
        }
      }
      EXPECT_EQ(calls, 6);
      EXPECT_EQ(optimizer.step_count(), 2);
      EXPECT_EQ(replayed.replays(), 0);
      return flat(net->parameters());
    };
    EXPECT_EQ(trained(true), trained(false));
  });
}

TEST_F(CaptureOnCpu, RefusesToKeepNoGraphs) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.cpu = true;
    Accelerator accelerator(options);
    const auto step = [](const Tensors& in) { return in; };
    EXPECT_NE(usage_error([&] { accelerator.capture(step, {.most_graphs = 0}); }), "");
    EXPECT_NE(usage_error([&] { accelerator.capture(step, {.warmup_steps = 0}); }), "");
  });
}

}  // namespace
}  // namespace accelerate::test
