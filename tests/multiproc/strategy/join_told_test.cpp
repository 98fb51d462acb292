// A rank that refuses something inside a join tells the others: nobody waits for it.
#include "multiproc/strategy/join_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Rank 0 has no data, rank 1 makes a mistake, rank 2 trains on.
struct JoinTold : Ranks {
  static AcceleratorOptions options() {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = std::chrono::minutes(10);
    return options;
  }

  // What the ranks throw where the body of rank 1 is `mistake`; then all go on together.
  template <class Mistake, class... Models>
  static void join(Accelerator& accelerator, const Rank& rank, const std::string& what,
                   Mistake mistake, const Models&... models) {
    const std::string text = usage_error([&] {
      accelerator.join_uneven_inputs(
          [&] {
            if (rank.rank == 1) mistake();
            for (int step = 0; step < 3 && rank.rank == 2; ++step) {
              (accelerator.backward(models(ones_times(1)).sum()), ...);
            }
          },
          models...);
    });
    EXPECT_THAT(text, HasSubstr(what));
    EXPECT_THAT(text, HasSubstr("[rank " + std::to_string(rank.rank) + " of 3]"));
    if (rank.rank != 1) {
      EXPECT_THAT(text, HasSubstr("on rank 1: "));
    }
    accelerator.join_uneven_inputs(
        [&] {
          for (int step = 0; step < rank.rank; ++step) {
            (accelerator.backward(models(ones_times(1)).sum()), ...);
          }
        },
        models...);
    EXPECT_EQ(accelerator.gather(torch::tensor({rank.rank})).numel(), 3);
  }
};

TEST_F(JoinTold, OfAModelThatIsNotJoined) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(options());
    auto [joined, other] = accelerator.prepare(seeded_net(), seeded_net());
    join(
        accelerator, rank, "the loss reaches a model inside join_uneven_inputs that is not joined",
        [&] { accelerator.backward(other(ones_times(1)).sum()); }, joined);
  });
}

TEST_F(JoinTold, OfBuffersOfAModelThatIsNotJoined) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(options());
    auto [joined, other] = accelerator.prepare(seeded_net(), seeded_net<Counting>());
    join(
        accelerator, rank, "a model exchanges its buffers inside join_uneven_inputs",
        [&] { other(ones_times(1)); }, joined);
  });
}

TEST_F(JoinTold, OfALossWithAWeight) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(options());
    auto model = accelerator.prepare(seeded_net());
    join(
        accelerator, rank, "a weighted loss inside join_uneven_inputs",
        [&] { accelerator.backward(model(ones_times(1)).sum(), {.weight = 2}); }, model);
  });
}

TEST_F(JoinTold, OfParametersThatTakeNoPart) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(options());
    auto [first, second] = accelerator.prepare(seeded_net(), seeded_net<Branches>());
    const std::string text = usage_error([&] {
      accelerator.join_uneven_inputs([&] {
        if (rank.rank == 0) return;
        accelerator.backward(first(ones_times(1)).sum() +
                             second(ones_times(1), rank.rank == 1 ? "ac" : "abc").sum());
      });
    });
    EXPECT_THAT(text, AllOf(HasSubstr("b.weight, b.bias"), HasSubstr("find_unused_parameters")));
  });
}

TEST_F(JoinTold, OfAJoinInsideAJoin) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(options());
    auto model = accelerator.prepare(seeded_net());
    join(
        accelerator, rank, "one join_uneven_inputs inside another",
        [&] { accelerator.join_uneven_inputs([] {}); }, model);
  });
}

}  // namespace
}  // namespace accelerate::test
