// Weights that are loaded or exchanged while they are trained.
#include "multiproc/state_folder.h"
#include "multiproc/strategy/replicas.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct ReloadedWeights : Replicas {};

void copy_values(const std::shared_ptr<Mlp>& to, const std::shared_ptr<Mlp>& from) {
  const torch::NoGradGuard no_grad;
  const auto values = from->parameters();
  const auto parameters = to->parameters();
  for (size_t i = 0; i < values.size(); ++i) parameters[i].copy_(values[i]);
}

TEST_F(ReloadedWeights, WeightsThatAreLoadedAgainAreTrainedTogether) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    const auto trained = [&](const std::string& load) {
      HalfPorted half;
      const std::string file = (folder / (load + ".pt")).string();
      if (rank.rank == 0) torch::save(half.net, file);
      half.accelerator.wait_for_everyone();
      if (load == "own") torch::load(half.net, file);
      if (load == "prepared") torch::load(*half.model, file);
      half.train();
      if (load == "own") torch::load(half.net, file);
      if (load == "prepared") torch::load(*half.model, file);
      if (load == "none") copy_values(half.net, HalfPorted().net);
      for (int step = 0; step < 3; ++step) {  // without a loader
        const StepData data = data_of_step(step, 2 * kRows);
        half.train_on(rows_of(data.input, rank.rank), rows_of(data.target, rank.rank));
      }
      return flat(half.net->parameters());
    };
    const auto expected = trained("none");
    EXPECT_EQ(trained("own"), expected);
    EXPECT_EQ(trained("prepared"), expected);
  });
}

// Two loads in a row, and of a part of the model, which the memory of a parameter tells.
TEST_F(ReloadedWeights, WeightsThatAreLoadedTwiceInARowAreTrainedTogether) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    const std::string file = (folder / "second.pt").string();
    if (rank.rank == 0) torch::save(half.net->second, file);
    half.accelerator.wait_for_everyone();
    for (int pass = 0; pass < 3; ++pass) {
      half.train();
      for (int load = 0; load < 2; ++load) torch::load(half.net->second, file);
      half.accelerator.backward((*half.model)(ones({2, 6}) * rank.rank).sum());
      const at::Tensor own = half.net->second->weight.grad().clone();
      at::Tensor mean = own.clone();
      half.accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
      EXPECT_TRUE(own.equal(mean)) << pass;
      half.optimizer->zero_grad();
    }
  });
}

// Evaluation with other weights that set_() puts in place and takes away again: the parameters get
// back the memory that they had, but not the nodes that their gradients go through.
TEST_F(ReloadedWeights, WeightsThatAreExchangedAndPutBackAreTrainedTogether) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    for (const bool by_others : {true, false, true}) {
      half.train();
      {
        const torch::NoGradGuard no_grad;
        std::vector<at::Tensor> backup;
        for (at::Tensor& parameter : half.net->parameters()) {
          backup.push_back(parameter.detach());
          parameter.set_(by_others ? torch::ones_like(parameter) : parameter.detach());
        }
        (void)half.net->forward(ones({2, 6}));
        for (size_t i = 0; i < backup.size(); ++i) half.net->parameters()[i].set_(backup[i]);
      }
      half.accelerator.backward((*half.model)(ones({2, 6}) * (1 + rank.rank)).sum());
      for (const at::Tensor& parameter : half.net->parameters()) {
        at::Tensor mean = parameter.grad().clone();
        half.accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
        EXPECT_TRUE(parameter.grad().equal(mean)) << by_others;
      }
      half.optimizer->zero_grad();
    }
  });
}

TEST_F(ReloadedWeights, AForwardPassOfLoadedWeightsThatBypassesTheModelIsRefused) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    const std::string file = (folder / "net.pt").string();
    if (rank.rank == 0) torch::save(half.net, file);
    half.accelerator.wait_for_everyone();
    torch::load(half.net, file);
    const at::Tensor loss = half.net->forward(ones({2, 6})).sum();
    EXPECT_THAT(usage_error([&] { half.accelerator.backward(loss); }),
                HasSubstr("was loaded again (torch::load, set_())"));
  });
}

}  // namespace
}  // namespace accelerate::test
