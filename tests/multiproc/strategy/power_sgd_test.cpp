// What PowerSGD makes of gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "multiproc/strategy/hooked_replica.h"

namespace accelerate::test {
namespace {

struct PowerSgd : Ranks {};

TEST_F(PowerSgd, SendsEverythingWholeBeforeItBegins) {
  run(2, [](const Rank& rank) {
    Group group;
    Replica replica(group.comm, {{16, 12}}, power_sgd(1));
    const auto full = noise(5, {16, 12});
    for (int pass = 0; pass < 2; ++pass) {
      EXPECT_TRUE(same(replica.reduce_one(full * (1 + rank.rank * 2)), full * 2)) << pass;
    }
    EXPECT_GT(distance(replica.reduce_one(full), full), 0.1);
  });
}

TEST_F(PowerSgd, IsExactWhereTheMeanHasNoMoreThanItsRank) {
  run(2, [](const Rank& rank) {
    Group group;
    for (const int64_t power : {1, 2, 3, 5}) {
      Replica replica(group.comm, {{24}, {32, 24}, {40, 5, 6}}, power_sgd(power));
      // On each rank another matrix of full rank; their mean has rank `power`.
      const auto share = [&](uint64_t seed, int64_t rows, int64_t columns) {
        const auto mean = torch::mm(noise(seed, {rows, power}), noise(seed + 1, {power, columns}));
        const auto apart = noise(seed + 2, {rows, columns});
        return std::pair(mean, rank.rank == 0 ? mean + apart : mean - apart);
      };
      const auto [mean, mine] = share(10, 32, 24);
      const auto [wide_mean, wide] = share(20, 40, 30);
      const auto bias = torch::full({24}, 1.0 + rank.rank);
      const std::vector<at::Tensor> gradients{bias, mine, wide.view({40, 5, 6})};
      warm_up(replica, gradients);
      const auto results = replica.reduce(gradients);
      EXPECT_TRUE(same(results[0], torch::full({24}, 1.5))) << power;
      EXPECT_LT(distance(results[1], mean), 1e-4 * mean.norm().item<double>()) << power;
      EXPECT_LT(distance(results[2], wide_mean.view({40, 5, 6})),
                1e-4 * wide_mean.norm().item<double>())
          << power;
    }
  });
}

// The directions that are not needed are rounding, and must not count.
TEST_F(PowerSgd, IsExactWhereTheGradientHasLessThanItsRank) {
  run(2, [](const Rank&) {
    Group group;
    // Twice the same, then another.
    const auto low_of = [](uint64_t pass, int64_t columns) {
      return torch::mm(noise(10 + pass / 2, {32, 1}), noise(20 + pass / 2, {1, columns}));
    };
    for (const char* hook : {"power_sgd", "batched_power_sgd"}) {
      for (const double epsilon : {0.0, 1e-30}) {
        for (const int64_t power : {1, 2, 3, 4}) {
          SCOPED_TRACE(std::string(hook) + " " + std::to_string(power));
          const bool square = std::string(hook) == "batched_power_sgd";
          const auto shape = square ? std::vector<int64_t>{1024} : std::vector<int64_t>{32, 24};
          CommHookOptions options = power_sgd(power, {.orthogonalization_epsilon = epsilon});
          options.hook = hook;
          Replica replica(group.comm, {shape}, options);
          for (uint64_t pass = 0; pass < 8; ++pass) {
            const at::Tensor low = low_of(pass, square ? 32 : 24).view(shape);
            EXPECT_LT(distance(replica.reduce_one(low), low), 1e-5 * low.norm().item<double>())
                << "pass " << pass << " with epsilon " << epsilon;
          }
        }
      }
    }
  });
}

// Rounding is the same in equal rows, so that all of it lies along the first direction.
TEST_F(PowerSgd, IsExactWhereAllRowsAreEqual) {
  run(2, [](const Rank&) {
    Group group;
    for (int64_t rows = 20; rows < 40; ++rows) {
      Replica replica(group.comm, {{rows, 24}}, power_sgd(2, {.use_error_feedback = false}));
      const at::Tensor low = torch::mm(torch::ones({rows, 1}), noise(rows, {1, 24}));
      warm_up(replica, {low});
      for (int pass = 0; pass < 3; ++pass) {
        EXPECT_LT(distance(replica.reduce_one(low), low), 1e-5 * low.norm().item<double>())
            << rows << " rows in pass " << pass;
      }
    }
  });
}

// Gram-Schmidt by its definition: each column divided by its length and the epsilon.
at::Tensor orthogonal_by_definition(const at::Tensor& matrix, double epsilon) {
  const at::Tensor first = matrix.select(1, 0) / (matrix.select(1, 0).norm() + epsilon);
  const at::Tensor rest = matrix.select(1, 1) - first * first.dot(matrix.select(1, 1));
  return torch::stack({first, rest / (rest.norm() + epsilon)}, 1);
}

TEST_F(PowerSgd, OfRankTwoAddsTheEpsilonToBothLengths) {
  run(2, [](const Rank&) {
    Group group;
    const auto full = noise(7, {32, 24});
    for (const double epsilon : {0.0, 0.5, 20.0}) {
      Replica replica(
          group.comm, {{32, 24}},
          power_sgd(2, {.use_error_feedback = false, .orthogonalization_epsilon = epsilon}));
      warm_up(replica, {full});
      const at::Tensor gradient = full.to(at::kDouble);
      const at::Tensor directions =
          orthogonal_by_definition(noise(0, {24, 2}).to(at::kDouble), epsilon);
      const at::Tensor basis = orthogonal_by_definition(2 * gradient.mm(directions), epsilon);
      const at::Tensor expected = basis.mm(basis.t()).mm(gradient);
      EXPECT_LT(distance(replica.reduce_one(full).to(at::kDouble), expected),
                1e-5 * expected.norm().item<double>())
          << epsilon;
    }
  });
}

TEST_F(PowerSgd, IsExactWhereTheSecondDirectionIsShort) {
  run(2, [](const Rank&) {
    Group group;
    for (const double second : {1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
      Replica replica(group.comm, {{32, 24}}, power_sgd(2));
      const at::Tensor low = torch::mm(noise(1, {32, 1}), noise(2, {1, 24})) +
                             torch::mm(noise(3, {32, 1}), noise(4, {1, 24})) * second;
      warm_up(replica, {low});
      for (int pass = 0; pass < 3; ++pass) {
        EXPECT_LT(distance(replica.reduce_one(low), low), 1e-5 * low.norm().item<double>())
            << second << " in pass " << pass;
      }
    }
  });
}

TEST_F(PowerSgd, GivesAMatrixOfItsRank) {
  run(2, [](const Rank&) {
    Group group;
    Replica replica(group.comm, {{32, 24}}, power_sgd(3, {.use_error_feedback = false}));
    const auto full = noise(7, {32, 24});
    warm_up(replica, {full});
    const auto lengths = at::linalg_svdvals(replica.reduce_one(full));
    EXPECT_GT(lengths[2].item<double>(), 1.0);
    EXPECT_LT(lengths[3].item<double>(), 1e-4);
  });
}

// How far the mean of many passes is from the gradient, relative to it.
double distance_after(Communicator& communicator, PowerSgdOptions options, int passes) {
  Replica replica(communicator, {{20, 16}}, power_sgd(2, options));
  const auto mine = noise(30 + static_cast<uint64_t>(communicator.rank()), {20, 16});
  const auto mean = (noise(30, {20, 16}) + noise(31, {20, 16})) / 2;
  warm_up(replica, {mine});
  at::Tensor sum = torch::zeros({20, 16});
  for (int pass = 0; pass < passes; ++pass) sum += replica.reduce_one(mine);
  return distance(sum / passes, mean) / mean.norm().item<double>();
}

TEST_F(PowerSgd, WithErrorFeedbackDeliversTheWholeGradientInTheLongRun) {
  run(2, [](const Rank&) {
    Group group;
    const double first = distance_after(group.comm, {}, 1);
    const double after_20 = distance_after(group.comm, {}, 20);
    const double after_80 = distance_after(group.comm, {}, 80);
    EXPECT_GT(first, 0.5);
    EXPECT_LT(after_20, 0.4 * first);
    EXPECT_LT(after_80, 0.4 * after_20);
    // What is left out without it is lost.
    EXPECT_GT(distance_after(group.comm, {.use_error_feedback = false}, 80), 0.4);
  });
}

// Power iteration: better directions from pass to pass of the same gradient.
TEST_F(PowerSgd, StartsFromTheLastDirectionsUnlessToldNotTo) {
  run(2, [](const Rank&) {
    Group group;
    auto lengths = torch::ones({16});
    lengths[0] = 3;
    const auto full = torch::mm(std::get<0>(at::linalg_qr(noise(1, {20, 16}))) * lengths,
                                std::get<0>(at::linalg_qr(noise(2, {16, 16}))));
    const auto distances = [&](bool warm_start) {
      Replica replica(group.comm, {{20, 16}},
                      power_sgd(1, {.use_error_feedback = false, .warm_start = warm_start}));
      warm_up(replica, {full});
      std::vector<double> all;
      for (int pass = 0; pass < 8; ++pass) all.push_back(distance(replica.reduce_one(full), full));
      return all;
    };
    const double best = std::sqrt(15.0);  // all but the longest direction
    const auto warm = distances(true);
    EXPECT_NEAR(warm.back(), best, 1e-3);
    EXPECT_GT(warm.front(), best + 0.01);
    const auto cold = distances(false);
    EXPECT_GT(*std::min_element(cold.begin(), cold.end()), best + 0.001);
    EXPECT_NE(cold[0], cold[1]);  // other directions each time
  });
}

TEST_F(PowerSgd, ComesBackAfterGradientsOfZero) {
  run(2, [](const Rank&) {
    Group group;
    for (const int64_t power : {1, 3}) {
      Replica replica(group.comm, {{20, 16}}, power_sgd(power));
      const auto low = torch::mm(noise(1, {20, 1}), noise(2, {1, 16}));
      warm_up(replica, {low});
      for (int pass = 0; pass < 2; ++pass) {
        EXPECT_TRUE(same(replica.reduce_one(torch::zeros({20, 16})), torch::zeros({20, 16})));
      }
      EXPECT_LT(distance(replica.reduce_one(low), low), 1e-4 * low.norm().item<double>()) << power;
    }
  });
}

// The scaler skips such a step and goes on.
TEST_F(PowerSgd, ComesBackAfterAnOverflow) {
  run(2, [](const Rank& rank) {
    Group group;
    for (const char* hook : {"power_sgd", "batched_power_sgd"}) {
      for (const char* wrapper : {"no", "fp16"}) {
        for (const int64_t power : {1, 3}) {
          SCOPED_TRACE(std::string(hook) + " " + wrapper + " " + std::to_string(power));
          CommHookOptions options = power_sgd(power);
          options.hook = hook;
          options.wrapper = wrapper;
          Replica replica(group.comm, {{20, 20}}, options);
          const auto low = torch::mm(noise(1, {20, 1}), noise(2, {1, 20}));
          warm_up(replica, {low});
          replica.reduce_one(low);
          // On one rank alone.
          at::Tensor huge = low.clone();
          if (rank.rank == 0) huge[3][4] = std::numeric_limits<float>::infinity();
          EXPECT_FALSE(replica.reduce_one(huge).isfinite().all().item<bool>());
          const at::Tensor after = replica.reduce_one(low);
          ASSERT_TRUE(after.isfinite().all().item<bool>());
          EXPECT_LT(distance(after, low), 2e-2 * low.norm().item<double>());
        }
      }
    }
  });
}

TEST_F(PowerSgd, LeavesMatricesThatWouldNotShrinkEnough) {
  run(2, [](const Rank& rank) {
    Group group;
    // (8 + 8) * 2 numbers instead of 64: half of them.
    const auto full = noise(3, {8, 8});
    const auto distance_with = [&](double rate) {
      Replica replica(group.comm, {{8, 8}},
                      power_sgd(2, {.min_compression_rate = rate, .use_error_feedback = false}));
      warm_up(replica, {full});
      return distance(replica.reduce_one(full * (rank.rank + 1)), full * 1.5);
    };
    EXPECT_EQ(distance_with(2), 0);
    EXPECT_GT(distance_with(1.9), 0.1);
  });
}

TEST_F(PowerSgd, BatchedPowerSgdSeesTheBucketAsOneSquare) {
  run(2, [](const Rank&) {
    Group group;
    CommHookOptions options = power_sgd(1, {.use_error_feedback = false});
    options.hook = CommHook::kBatchedPowerSgd;
    Replica replica(group.comm, {{36}}, options);
    const auto square = torch::mm(noise(1, {6, 1}), noise(2, {1, 6})).view({36});
    warm_up(replica, {square});
    EXPECT_LT(distance(replica.reduce_one(square), square), 1e-5);
    EXPECT_GT(distance(replica.reduce_one(noise(9, {36})), noise(9, {36})), 1.0);
  });
}

TEST_F(PowerSgd, BatchedPowerSgdPadsTheSquareAndFeedsErrorsBack) {
  run(2, [](const Rank&) {
    Group group;
    CommHookOptions options = power_sgd(1);
    options.hook = CommHook::kBatchedPowerSgd;
    Replica replica(group.comm, {{4, 5}, {3}}, options);  // 23 of 25
    const std::vector<at::Tensor> gradients{noise(1, {4, 5}), noise(2, {3})};
    warm_up(replica, gradients);
    at::Tensor sum = torch::zeros({4, 5});
    constexpr int kPasses = 60;
    for (int pass = 0; pass < kPasses; ++pass) sum += replica.reduce(gradients)[0];
    EXPECT_LT(distance(sum / kPasses, gradients[0]), 0.15 * gradients[0].norm().item<double>());
  });
}

TEST_F(PowerSgd, AWrapperLetsPowerSgdSendHalfPrecision) {
  run(2, [](const Rank&) {
    Group group;
    CommHookOptions options = power_sgd(2);
    options.wrapper = "fp16";
    Replica replica(group.comm, {{32, 24}, {4}}, options);
    const auto low = torch::mm(noise(1, {32, 2}), noise(2, {2, 24}));
    const auto bias = torch::full({4}, 1 + 1.0 / 2048);
    warm_up(replica, {low, bias});
    const auto results = replica.reduce({low, bias});
    EXPECT_EQ(results[0].scalar_type(), at::kFloat);
    EXPECT_LT(distance(results[0], low), 2e-2 * low.norm().item<double>());
    EXPECT_GT(distance(results[0], low), 1e-5 * low.norm().item<double>());
    EXPECT_TRUE(same(results[1], torch::ones({4})));  // rounded to half
  });
}

}  // namespace
}  // namespace accelerate::test
