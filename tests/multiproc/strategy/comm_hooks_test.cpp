// Gradients that are made smaller on their way between the ranks.
#include "multiproc/strategy/hooked_replica.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct CommHooks : Ranks {};

// 1 + 2^-9 needs nine bits behind the point, which half has and bfloat16 has not.
TEST_F(CommHooks, GradientsTravelInTheTypeOfTheHook) {
  run(2, [](const Rank&) {
    Group group;
    const auto sent_as = [&](CommHook hook, double value) {
      Replica replica(group.comm, {{3}}, {.hook = hook});
      return replica.reduce_one(torch::full({3}, value))[0].item<double>();
    };
    const double nine_bits = 1 + 1.0 / 512;
    const double eleven_bits = 1 + 1.0 / 2048;
    EXPECT_EQ(sent_as("no", eleven_bits), eleven_bits);
    EXPECT_EQ(sent_as("fp16", nine_bits), nine_bits);
    EXPECT_EQ(sent_as("fp16", eleven_bits), 1);
    EXPECT_EQ(sent_as("bf16", nine_bits), 1);
    EXPECT_EQ(sent_as("bf16", 1e30), static_cast<double>(static_cast<float>(c10::BFloat16(1e30))));
  });
}

TEST_F(CommHooks, HalfPrecisionAveragesWithoutOverflowingInTheSum) {
  run(2, [](const Rank& rank) {
    Group group;
    Replica replica(group.comm, {{2}, {2, 2}}, {.hook = CommHook::kFp16});
    for (int pass = 0; pass < 3; ++pass) {
      const auto results =
          replica.reduce({torch::full({2}, 60000.0), torch::full({2, 2}, 2.0 + 4 * rank.rank)});
      EXPECT_TRUE(same(results[0], torch::full({2}, 60000.0)));
      EXPECT_TRUE(same(results[1], torch::full({2, 2}, 4.0)));
    }
  });
}

TEST_F(CommHooks, RanksHoldTheSameGradientsWhateverTheBuckets) {
  for (const char* hook : {"bf16", "power_sgd", "batched_power_sgd"}) {
    const auto results = run_collect(3, [hook](const Rank& rank) {
      Group group;
      CommHookOptions options = power_sgd(2);
      options.hook = hook;
      // A bucket for each parameter, all under way at once.
      std::vector<std::vector<int64_t>> shapes(6, {24, 16});
      Replica replica(group.comm, shapes, options, {.bucket_bytes_cap = 64});
      std::vector<double> sums;
      for (uint64_t pass = 0; pass < 6; ++pass) {
        std::vector<at::Tensor> gradients;
        for (uint64_t i = 0; i < 6; ++i) {
          gradients.push_back(
              noise(100 * pass + 10 * i + static_cast<uint64_t>(rank.rank), {24, 16}));
        }
        for (const auto& each : replica.reduce(gradients)) {
          sums.push_back(each.to(at::kDouble).pow(2).sum().item<double>());
        }
      }
      return sums;
    });
    EXPECT_EQ(results[0].size(), 36);
    EXPECT_EQ(results[1], results[0]) << hook;
    EXPECT_EQ(results[2], results[0]) << hook;
  }
}

// A model whose pass was refused may be gone before its buckets have arrived.
TEST_F(CommHooks, BucketsThatAreUnderWayOutliveTheirHook) {
  run(2, [](const Rank& rank) {
    for (const char* hook : {"fp16", "bf16"}) {
      Group group;
      Group signal;
      const auto users = comm::process_group_of(group.comm).use_count();
      {
        // Large enough for a bucket of their own each, from the second pass on.
        const at::Tensor large = torch::ones({300'000});
        Replica replica(group.comm, {{300'000}, {300'000}}, {.hook = hook},
                        {.bucket_bytes_cap = 64});
        replica.reduce({large, large});
        replica.reduce({large, large});
        if (rank.rank == 1) signal.comm.barrier();  // the other one has gone by then
        replica.begin_pass();
      }
      if (rank.rank == 0) {
        // A bucket that arrives on a thread of the group must not be the last to hold it: its
        // destructor joins that thread.
        EXPECT_EQ(comm::process_group_of(group.comm).use_count(), users);
        signal.comm.barrier();
      }
      signal.comm.barrier();
    }
  });
}

TEST_F(CommHooks, OptionsThatDoNotGoTogetherAreRefused) {
  run(1, [](const Rank&) {
    const auto refusal = [](const CommHookOptions& options) {
      return group_usage_error([&] { require_usable(options); }, /*of_a_group=*/false);
    };
    EXPECT_EQ(refusal({.hook = "power_sgd", .power_sgd = {.start_power_sgd_iter = 1}}),
              "UsageError: start_power_sgd_iter must be more than 1 with error feedback or warm "
              "start\n"
              "  at   CommHookOptions\n"
              "  try  buckets are rebuilt after the first backward pass: start after it");
    require_usable(
        {.hook = "power_sgd",
         .power_sgd = {
             .start_power_sgd_iter = 0, .use_error_feedback = false, .warm_start = false}});
    EXPECT_THAT(refusal({.hook = "power_sgd", .power_sgd = {.matrix_approximation_rank = 0}}),
                HasSubstr("matrix_approximation_rank must be 1 or more"));
    EXPECT_THAT(refusal({.hook = "fp16", .wrapper = "bf16"}),
                HasSubstr("a wrapper goes around PowerSGD alone, not around 'fp16'"));
    EXPECT_THAT(refusal({.hook = "power_sgd", .wrapper = "power_sgd"}),
                HasSubstr("PowerSGD cannot be a wrapper"));
    EXPECT_THAT(group_usage_error([] { (void)CommHook("powersgd"); }, /*of_a_group=*/false),
                HasSubstr("unknown communication hook 'powersgd'"));
  });
}

}  // namespace
}  // namespace accelerate::test
