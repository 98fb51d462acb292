// What a join refuses, and how it ends where a rank fails.
#include "multiproc/strategy/join_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct JoinRefusals : Ranks {};

TEST_F(JoinRefusals, AllRanksThrowOnAnEarlyEndWhereThatIsAskedFor) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    int steps = 0;
    const auto join = [&](int length) {
      accelerator.join_uneven_inputs(
          [&] {
            for (int step = 0; step < length; ++step, ++steps) {
              accelerator.backward(model(ones_times(1)).sum());
            }
          },
          {.throw_on_early_end = true}, model);
    };
    join(2);  // even: nothing is thrown
    EXPECT_THAT(usage_error([&] { join(rank.rank == 1 ? 1 : 3); }),
                AllOf(HasSubstr("[rank " + std::to_string(rank.rank) + " of 3]"),
                      HasSubstr("rank 1 has run out of data, rank 0 has not")));
    EXPECT_EQ(steps, 3);
    net->zero_grad();
    accelerator.backward(model(ones_times(1)).sum());  // all can go on
  });
}

TEST_F(JoinRefusals, RanksThatDoDifferentThingsAreRefused) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto one = seeded_net();
    auto other = seeded_net();
    auto [first, second] = accelerator.prepare(one, other);
    EXPECT_THAT(usage_error([&] {
                  accelerator.join_uneven_inputs([&] {
                    if (rank.rank == 0) return;
                    auto& mine = rank.rank == 1 ? first : second;
                    accelerator.backward(mine(ones_times(1)).sum());
                  });
                }),
                HasSubstr("rank 1 is about to run a backward pass of model 0, rank 2 a backward "
                          "pass of model 1"));
  });
}

// A rank without data would answer compressed gradients with plain ones.
TEST_F(JoinRefusals, CompressedGradientsAreRefused) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.ddp.comm_hook.hook = CommHook::kBf16;
    Accelerator accelerator(options);
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs([] {}); }),
                HasSubstr("leave ddp.comm_hook out"));
  });
}

TEST_F(JoinRefusals, RanksThatJoinDifferentlyAreRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    const JoinDivisor own = rank.rank == 0 ? JoinDivisor::kAllRanks : JoinDivisor::kSamples;
    EXPECT_THAT(
        usage_error([&] { accelerator.join_uneven_inputs([] {}, {.divide_by = own}, model); }),
        HasSubstr("the ranks join differently"));
  });
}

TEST_F(JoinRefusals, TrainingAModelThatWasNotNamedIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto [joined, other] = accelerator.prepare(seeded_net(), seeded_net<Counting>());
    const auto train_other = [&] {
      torch::NoGradGuard no_buffers;
      at::AutoGradMode grad(true);
      accelerator.backward(other(ones_times(1)).sum());
    };
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs(train_other, joined); }),
                HasSubstr("without being joined"));
    {
      auto alone = accelerator.no_sync(other);  // on its own rank it may
      accelerator.join_uneven_inputs(train_other, joined);
    }
    accelerator.join_uneven_inputs(train_other, joined, other);
  });
}

TEST_F(JoinRefusals, AModelOfAnotherAcceleratorIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    Accelerator another(on_cpu());
    auto model = another.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs([] {}, model); }),
                HasSubstr("a model that this accelerator did not prepare"));
  });
}

TEST_F(JoinRefusals, AJoinInsideAJoinIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] {
                  accelerator.join_uneven_inputs([&] { accelerator.join_uneven_inputs([] {}); });
                }),
                HasSubstr("one join_uneven_inputs inside another"));
  });
}

TEST_F(JoinRefusals, UnusedParametersAreNamedAlsoWhereSeveralModelsMeet) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto [first, second] = accelerator.prepare(seeded_net(), seeded_net<Branches>());
    EXPECT_THAT(
        usage_error([&] {
          accelerator.join_uneven_inputs([&] {
            accelerator.backward(first(ones_times(1)).sum() + second(ones_times(1), "ac").sum());
          });
        }),
        AllOf(HasSubstr("b.weight, b.bias"), HasSubstr("find_unused_parameters")));
  });
}

TEST_F(JoinRefusals, AnExceptionInTheBodyLeavesAtOnceAndTheOthersNameItsRank) {
  spawn(3, [](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = std::chrono::minutes(10);  // nobody waits for that long here
    Accelerator accelerator(options);
    auto model = accelerator.prepare(seeded_net());
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 10 * rank.rank; ++step) {
        if (step == 3 && rank.rank == 1) throw std::runtime_error("the data is spoilt");
        accelerator.backward(model(ones_times(1)).sum());
      }
    });
  });
  EXPECT_EQ(exit_code_of(1), kExitOtherException);
  EXPECT_THAT(error_of(1), HasSubstr("the data is spoilt"));
  for (int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr(rank == 0 ? "join_uneven_inputs" : "backward"),
                                      HasSubstr("rank 1 ")));
  }
}

TEST_F(JoinRefusals, AfterAnExceptionInTheBodyTheModelCanBeJoinedAgain) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THROW(accelerator.join_uneven_inputs([] { throw std::runtime_error("on all ranks"); }),
                 std::runtime_error);
    int steps = 0;
    accelerator.join_uneven_inputs([&] {
      for (; steps < 1 + rank.rank; ++steps) accelerator.backward(model(ones_times(1)).sum());
    });
    EXPECT_EQ(steps, 1 + rank.rank);
  });
}

TEST_F(JoinRefusals, SamplesCannotBeNegative) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THAT(
        usage_error([&] { accelerator.backward(model(ones_times(1)).sum(), {.samples = -1}); }),
        AllOf(HasSubstr("a batch of -1 samples"), HasSubstr("BackwardOptions::samples")));
  });
}

}  // namespace
}  // namespace accelerate::test
