// Which passes of a window bring the gradients of the ranks together.
#include <tuple>

#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

// All gradients as each rank has them at the moment. Collective.
std::vector<std::vector<double>> gradients_by_rank(Accelerator& accelerator,
                                                   const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& gradient : gradients(parameters)) pieces.push_back(gradient.flatten());
  const at::Tensor all = accelerator.gather(torch::cat(pieces).unsqueeze(0));
  std::vector<std::vector<double>> result;
  for (int64_t rank = 0; rank < all.size(0); ++rank) result.push_back(flat({all[rank]}));
  return result;
}

TEST_F(Ranks, NothingIsSentInsideAWindowUnlessEveryBatchIsSynchronised) {
  run(2, [](const Rank& rank) {
    for (const bool sync_each_batch : {false, true}) {
      Accelerator accelerator(accumulating({.steps = 2, .sync_each_batch = sync_each_batch}));
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int step = 0; step < 2; ++step) {
        const auto micro_batch = accelerator.accumulate(model);
        const StepData data = data_of_step(step, 2 * kRows);
        accelerator.backward(
            loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
        const auto seen = gradients_by_rank(accelerator, net->parameters());
        const bool averaged = step == 1 || sync_each_batch;
        EXPECT_EQ(seen[0] == seen[1], averaged) << "step " << step;
        optimizer.step();
        optimizer.zero_grad();
      }
    }
  });
}

TEST_F(Ranks, TriggerSyncAveragesInsideNoSync) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    const StepData data = data_of_step(0, 2 * kRows);
    const auto pass = [&] {
      accelerator.backward(
          loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
    };
    {
      const auto guard = accelerator.no_sync(model);
      pass();
      const auto before = gradients_by_rank(accelerator, net->parameters());
      EXPECT_NE(before[0], before[1]);
      accelerator.trigger_sync_in_backward(model);
      pass();
      const auto after = gradients_by_rank(accelerator, net->parameters());
      EXPECT_EQ(after[0], after[1]);
      pass();  // that was for one pass
      const auto later = gradients_by_rank(accelerator, net->parameters());
      EXPECT_NE(later[0], later[1]);
    }
    EXPECT_EQ(model.strategy()->gradient_sync(), GradientSync::kOn);
  });
}

}  // namespace
}  // namespace accelerate::test
