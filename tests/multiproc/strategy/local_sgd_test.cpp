// Training on each rank by itself with parameters that are averaged now and then.
#include <accelerate/local_sgd.h>

#include <stdexcept>

#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct LocalSgdOnRanks : Ranks {};

std::vector<double> values(const at::Tensor& tensor) { return flat({tensor}); }

TEST_F(LocalSgdOnRanks, AveragesEverySoManyStepsAndAtTheEnd) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto whole = torch::zeros({2});
    auto wide = torch::zeros({1}, at::kDouble);
    LocalSgd local_sgd(accelerator.communicator(), {whole, wide}, nullptr, {.local_sgd_steps = 2});
    const auto train = [&] {
      whole += rank.rank + 1;
      wide += 10.0 * rank.rank;
      local_sgd.step();
    };
    train();
    EXPECT_THAT(values(whole), ElementsAre(rank.rank + 1, rank.rank + 1));
    train();
    EXPECT_THAT(values(whole), ElementsAre(3, 3));
    EXPECT_THAT(values(wide), ElementsAre(10));
    train();
    EXPECT_THAT(values(wide), ElementsAre(10 + 10 * rank.rank));
    local_sgd.finish();
    EXPECT_THAT(values(whole), ElementsAre(4.5, 4.5));
    EXPECT_THAT(values(wide), ElementsAre(15));
  });
}

// One backward pass and step with data of this rank alone; returns its gradient.
std::vector<double> train_step(Accelerator& accelerator, PreparedModel<Mlp>& model,
                               PreparedOptimizer& optimizer, int step) {
  const StepData data = data_of_step(step, kRows * accelerator.num_processes());
  optimizer.zero_grad();
  accelerator.backward(loss_of(model(rows_of(data.input, accelerator.process_index())),
                               rows_of(data.target, accelerator.process_index())));
  optimizer.step();
  return flat(gradients(model.parameters()));
}

TEST_F(LocalSgdOnRanks, KeepsGradientsOnTheirRankWhileItLives) {
  const auto results = run_collect(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    std::vector<double> sums;
    const auto sum_of = [](const std::vector<double>& all) {
      return std::accumulate(all.begin(), all.end(), 0.0);
    };
    {
      LocalSgd local_sgd(accelerator.communicator(), model, {.local_sgd_steps = 2});
      for (int step = 0; step < 3; ++step) {
        sums.push_back(sum_of(train_step(accelerator, model, optimizer, step)));
        local_sgd.step();
      }
    }
    sums.push_back(sum_of(flat(net->parameters())));
    sums.push_back(sum_of(train_step(accelerator, model, optimizer, 3)));
    return sums;
  });
  for (int i = 0; i < 3; ++i) EXPECT_NE(results[0][i], results[1][i]);
  EXPECT_EQ(results[0][3], results[1][3]);  // averaged at the end
  EXPECT_EQ(results[0][4], results[1][4]);  // gradients are averaged again
}

TEST_F(LocalSgdOnRanks, DisabledOrAloneItChangesNothing) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto own = torch::full({1}, rank.rank);
    LocalSgd local_sgd(accelerator.communicator(), {own}, nullptr,
                       {.local_sgd_steps = 1, .enabled = false});
    local_sgd.step();
    local_sgd.finish();
    EXPECT_THAT(values(own), ElementsAre(rank.rank));
  });
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto own = torch::full({1}, 3.0);
    LocalSgd local_sgd(accelerator.communicator(), {own}, nullptr, {.local_sgd_steps = 1});
    local_sgd.step();
    EXPECT_THAT(values(own), ElementsAre(3));
  });
}

TEST_F(LocalSgdOnRanks, AnExceptionLeavesItWithoutWaitingForTheOthers) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto own = torch::full({1}, static_cast<double>(rank.rank));
    try {
      LocalSgd local_sgd(accelerator.communicator(), {own}, nullptr, {.local_sgd_steps = 2});
      local_sgd.step();
      throw std::runtime_error("leaves");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "leaves");
    }
    EXPECT_THAT(values(own), ElementsAre(rank.rank));
  });
}

TEST_F(LocalSgdOnRanks, RefusesANumberOfStepsBelowOne) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    EXPECT_THAT(usage_error([&] {
                  LocalSgd local_sgd(accelerator.communicator(), {}, nullptr,
                                     {.local_sgd_steps = 0});
                }),
                HasSubstr("local_sgd_steps must be 1 or more, not 0"));
  });
}

}  // namespace
}  // namespace accelerate::test
