// Ranks of which some give their losses a weight and others do not: an error on all of them, not
// messages of different sizes, which would end the processes.
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct LossWeightRanks : Ranks {};

// One backward pass of every rank; those for which `weighted` holds give a weight.
template <class Weighted>
void pass(Accelerator& accelerator, const PreparedModel<Mlp>& model, Weighted weighted, int rank) {
  const at::Tensor loss = model(ones({2, 6})).mean();
  if (weighted(rank)) {
    accelerator.backward(loss, {.weight = 2});
  } else {
    accelerator.backward(loss);
  }
}

TEST_F(LossWeightRanks, ThatDifferEndWithAnErrorThatSaysWhatEachDoes) {
  spawn(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    // After one pass of all ranks without and one with a weight: it may be found at any time.
    pass(
        accelerator, model, [](int) { return false; }, rank.rank);
    pass(
        accelerator, model, [](int) { return true; }, rank.rank);
    pass(
        accelerator, model, [](int which) { return which != 1; }, rank.rank);
    wait_for_exchanges();
    accelerator.wait_for_everyone();
  });
  for (int rank : {0, 1, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitUsageError) << rank;
    EXPECT_THAT(error_of(rank),
                AllOf(HasSubstr("the ranks wait for each other in different operations: "),
                      HasSubstr("rank 1 in backward"), HasSubstr(" in all_gather Double[]"),
                      HasSubstr("[rank " + std::to_string(rank) + " of 3]")));
  }
}

TEST_F(LossWeightRanks, ThatDifferAreRefusedBeforeThePassWhereCollectivesAreCompared) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.check_collectives = true;
    Accelerator accelerator(options);
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    pass(
        accelerator, model, [](int) { return false; }, rank.rank);
    EXPECT_THAT(usage_error([&] {
                  pass(
                      accelerator, model, [](int which) { return which == 0; }, rank.rank);
                }),
                AllOf(HasSubstr("rank 0: backward of a loss with a weight"),
                      HasSubstr("rank 1: backward of a loss without a weight"),
                      HasSubstr("[rank " + std::to_string(rank.rank) + " of 2]")));
    pass(
        accelerator, model, [](int) { return true; }, rank.rank);  // all can go on
    {
      auto alone = accelerator.no_sync(model);  // nothing is exchanged, so nobody is asked
      if (rank.rank == 0)
        pass(
            accelerator, model, [](int) { return false; }, rank.rank);
    }
    pass(
        accelerator, model, [](int) { return false; }, rank.rank);
  });
}

}  // namespace
}  // namespace accelerate::test
