// The memory of PowerSGD in a checkpoint.
#include "multiproc/strategy/hooked_replica.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct PowerSgdState : Ranks {};

// Another rank of the approximation: directions of the old one neither fit nor are misread.
TEST_F(PowerSgdState, GoesOnWithAnotherRankOfTheApproximation) {
  run(2, [](const Rank&) {
    Group group;
    const auto low = torch::mm(noise(1, {32, 1}), noise(2, {1, 24}));
    for (const char* hook : {"power_sgd", "batched_power_sgd"}) {
      for (const auto& [saved, loaded] :
           {std::pair(1, 3), std::pair(3, 1), std::pair(1, 2), std::pair(2, 1), std::pair(3, 3)}) {
        SCOPED_TRACE(std::string(hook) + " " + std::to_string(saved) + " to " +
                     std::to_string(loaded));
        // As a square, the low matrix has another rank than one; a diagonal of equal rows has one.
        const auto shape = std::string(hook) == "power_sgd" ? std::vector<int64_t>{32, 24}
                                                            : std::vector<int64_t>{36};
        const at::Tensor gradient =
            shape.size() == 2 ? low : torch::mm(noise(1, {6, 1}), noise(2, {1, 6})).view({36});
        CommHookOptions options = power_sgd(saved, {.min_compression_rate = 0.1});
        options.hook = hook;
        Replica before(group.comm, {shape}, options);
        warm_up(before, {gradient});
        before.reduce_one(gradient);
        const StateDict state = before.hook().state();

        options.power_sgd.matrix_approximation_rank = loaded;
        Replica after(group.comm, {shape}, options);
        warm_up(after, {gradient});
        const std::string note = after.hook().check(state);
        if (saved == loaded) {
          EXPECT_EQ(note, "");
        } else {
          EXPECT_THAT(note,
                      HasSubstr("saved with matrix_approximation_rank " + std::to_string(saved) +
                                ", this program has " + std::to_string(loaded)));
        }
        after.hook().load(state, test_device());
        for (int pass = 0; pass < 2; ++pass) {
          EXPECT_LT(distance(after.reduce_one(gradient), gradient),
                    1e-4 * gradient.norm().item<double>())
              << pass;
        }
      }
    }
  });
}

TEST_F(PowerSgdState, SaysThatItGoesOnFromTheStateOfItsOtherForm) {
  run(1, [](const Rank&) {
    PowerSgdHook gradients(nullptr, {}, PowerSgdHook::Shape::kGradients);
    PowerSgdHook square(nullptr, {}, PowerSgdHook::Shape::kSquare);
    EXPECT_EQ(gradients.check(gradients.state()), "");
    EXPECT_THAT(square.check(gradients.state()),
                HasSubstr("saved by power_sgd, this program uses batched_power_sgd"));
    EXPECT_THAT(gradients.check(square.state()),
                HasSubstr("saved by batched_power_sgd, this program uses power_sgd"));
  });
}

TEST_F(PowerSgdState, AStateOfPowerSgdThatDoesNotHangTogetherIsRefused) {
  run(1, [](const Rank&) {
    PowerSgdHook hook(nullptr, {}, PowerSgdHook::Shape::kGradients);
    const auto error_of = [&](StateDict bucket) {
      bucket.set("index", 0);
      const StateDict state{
          {"iteration", 3}, {"draws", 1}, {"buckets", StateValue::List{std::move(bucket)}}};
      try {
        (void)hook.check(state);
      } catch (const CheckpointError& error) {
        return error.message();
      }
      return std::string("taken");
    };
    const StateValue::List good{torch::ones({4, 1})};
    EXPECT_EQ(error_of({{"directions", good}, {"first_directions", good}}), "taken");
    EXPECT_THAT(error_of({{"directions", good}, {"first_directions", StateValue::List{}}}),
                HasSubstr("that do not belong together"));
    EXPECT_THAT(error_of({{"directions", good},
                          {"first_directions", StateValue::List{torch::ones({5, 1})}}}),
                HasSubstr("that do not belong together"));
    const StateValue::List rows{torch::ones({4})};
    EXPECT_THAT(error_of({{"directions", rows}, {"first_directions", rows}}),
                HasSubstr("directions that are not matrices"));
    EXPECT_THAT(
        error_of(
            {{"directions", good}, {"first_directions", good}, {"error", torch::ones({2, 2})}}),
        HasSubstr("an error that is not a row of numbers"));
  });
}

}  // namespace
}  // namespace accelerate::test
