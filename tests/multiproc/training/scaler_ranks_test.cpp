// Scaled losses and memory that runs out, in training on several ranks.
#include <accelerate/autocast.h>
#include <accelerate/find_batch_size.h>
#include <accelerate/grad_scaler.h>

#include <limits>
#include <stdexcept>

#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;

struct TrainingOnRanks : Ranks {};

TEST_F(TrainingOnRanks, AnOverflowOnOneRankSkipsTheStepOnAll) {
  const auto results = run_collect(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    GradScaler scaler({.init_scale = 8, .growth_interval = 2});
    std::vector<double> trace;
    for (int step = 0; step < 4; ++step) {
      const StepData data = data_of_step(step, kRows * 3);
      optimizer.zero_grad();
      auto loss = loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank));
      const bool overflows = step == 1 && rank.rank == 2;
      if (overflows) loss = loss * std::numeric_limits<float>::infinity();
      accelerator.backward(scaler.scale(loss));
      trace.push_back(scaler.step(sgd) ? 1 : 0);
      scaler.update();
      trace.push_back(scaler.scale_factor());
    }
    trace.push_back(flat({net->first->weight.sum()})[0]);
    return trace;
  });
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
  EXPECT_THAT(std::vector(results[0].begin(), results[0].end() - 1),
              ElementsAre(1, 8, 0, 4, 1, 4, 1, 8));
}

// An accelerator for each attempt: the rank that leaves closes it, which frees the others from the
// backward pass in which they wait for it.
TEST_F(TrainingOnRanks, AllTryASmallerBatchWhenOneRunsOutOfMemoryWhileOthersAverageGradients) {
  run(2, [](const Rank& rank) {
    Accelerator outer(on_cpu());
    std::vector<int64_t> tried;
    find_executable_batch_size(
        [&](int64_t batch_size) {
          tried.push_back(batch_size);
          Accelerator accelerator(on_cpu());
          auto model = accelerator.prepare(std::make_shared<Mlp>());
          const auto loss = model(ones({batch_size, 6})).sum();
          if (rank.rank == 1 && batch_size > 7) throw std::runtime_error("CUDA out of memory.");
          accelerator.backward(loss);
        },
        {.starting_batch_size = 10, .communicator = &outer.communicator()});
    EXPECT_THAT(tried, ElementsAre(10, 9, 8, 7));
  });
}

// The loss at the end of training a small network, in some precision.
double loss_in(MixedPrecision precision) {
  torch::manual_seed(5);
  const PrecisionPolicy policy(precision, test_device().type());
  GradScaler scaler({.growth_interval = 20, .enabled = policy.needs_grad_scaler()});
  auto net = std::make_shared<Mlp>(16);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  at::Tensor loss;
  for (int step = 0; step < 100; ++step) {
    const StepData data = data_of_step(step % 4, 16);
    sgd.zero_grad();
    at::Tensor output;
    {
      const auto autocast = policy.autocast();
      output = net->forward(data.input);
    }
    loss = loss_of(policy.output(output), data.target * 0.5);
    scaler.scale(loss).backward();
    scaler.step(sgd);
    scaler.update();
  }
  return loss.item<double>();
}

TEST_F(TrainingOnRanks, MixedPrecisionReachesTheLossOfFullPrecision) {
  run(1, [](const Rank&) {
    const double full = loss_in("no");
    EXPECT_LT(full, 0.25);
    EXPECT_NEAR(loss_in("fp16"), full, 0.01);
    EXPECT_NEAR(loss_in("bf16"), full, 0.02);
    EXPECT_NE(loss_in("bf16"), full);
  });
}

}  // namespace
}  // namespace accelerate::test
