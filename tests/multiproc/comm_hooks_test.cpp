// Gradients that are made smaller on their way between the ranks.
#include "strategy/ddp/comm_hooks.h"

#include <torch/torch.h>

#include <functional>
#include <limits>

#include "comm/groups/process_group.h"
#include "multiproc/group.h"
#include "strategy/ddp/power_sgd.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct CommHooks : Ranks {};

// Parameters whose gradients the test sets, on a reducer with a hook.
class Replica {
 public:
  Replica(Communicator& communicator, const std::vector<std::vector<int64_t>>& shapes,
          const CommHookOptions& options, const compat::ReducerOptions& reducer = {}) {
    std::vector<std::string> names;
    for (const auto& shape : shapes) {
      parameters_.push_back(torch::zeros(shape, torch::requires_grad().device(test_device())));
      names.push_back("parameter " + std::to_string(names.size()));
    }
    const auto group = comm::process_group_of(communicator);
    made_ = compat::make_reducer(parameters_, names, std::vector<bool>(shapes.size(), false), group,
                                 reducer);
    hook_ = register_comm_hook(*made_.reducer, group, options);
  }

  // What PowerSGD keeps.
  PowerSgdHook& hook() { return *hook_; }

  // A backward pass with these gradients on this rank; returns what the hook made of them, in host
  // memory.
  std::vector<at::Tensor> reduce(const std::vector<at::Tensor>& gradients) {
    at::Tensor loss = torch::zeros({}, test_device());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad().reset();
      loss = loss + (parameters_[i] * gradients[i].to(test_device())).sum();
    }
    made_.reducer->arm({});
    loss.backward();
    std::vector<at::Tensor> results;
    for (const at::Tensor& parameter : parameters_)
      results.push_back(parameter.grad().cpu().clone());
    return results;
  }
  at::Tensor reduce_one(const at::Tensor& gradient) { return reduce({gradient})[0]; }

  // A pass that reaches the last parameter alone: its bucket is under way when this returns, and
  // the pass never ends.
  void begin_pass() {
    made_.reducer->arm({});
    parameters_.back().sum().backward();
  }

 private:
  std::vector<at::Tensor> parameters_;
  compat::ReducerAndLogger made_;
  PowerSgdHook* hook_ = nullptr;
};

// The same on every rank that asks; another for each seed.
at::Tensor noise(uint64_t seed, const std::vector<int64_t>& shape) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed));
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); }

// From the third pass on, as early as possible.
CommHookOptions power_sgd(int64_t rank, PowerSgdOptions options = {}) {
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 2;
  return {.hook = CommHook::kPowerSgd, .power_sgd = options};
}

// The passes before PowerSGD begins.
void warm_up(Replica& replica, const std::vector<at::Tensor>& gradients) {
  for (int i = 0; i < 2; ++i) replica.reduce(gradients);
}

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

TEST_F(CommHooks, PowerSgdSendsEverythingWholeBeforeItBegins) {
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

TEST_F(CommHooks, PowerSgdIsExactWhereTheMeanHasNoMoreThanItsRank) {
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
TEST_F(CommHooks, PowerSgdIsExactWhereTheGradientHasLessThanItsRank) {
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
TEST_F(CommHooks, PowerSgdIsExactWhereAllRowsAreEqual) {
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

TEST_F(CommHooks, PowerSgdOfRankTwoAddsTheEpsilonToBothLengths) {
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

TEST_F(CommHooks, PowerSgdIsExactWhereTheSecondDirectionIsShort) {
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

TEST_F(CommHooks, PowerSgdGivesAMatrixOfItsRank) {
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

TEST_F(CommHooks, PowerSgdWithErrorFeedbackDeliversTheWholeGradientInTheLongRun) {
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
TEST_F(CommHooks, PowerSgdStartsFromTheLastDirectionsUnlessToldNotTo) {
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

TEST_F(CommHooks, PowerSgdComesBackAfterGradientsOfZero) {
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
TEST_F(CommHooks, PowerSgdComesBackAfterAnOverflow) {
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

TEST_F(CommHooks, PowerSgdLeavesMatricesThatWouldNotShrinkEnough) {
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

TEST_F(CommHooks, BatchedPowerSgdSeesTheBucketAsOneSquare) {
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

TEST_F(CommHooks, BatchedPowerSgdPadsTheSquareAndFeedsErrorsBack) {
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

TEST_F(CommHooks, AWrapperLetsPowerSgdSendHalfPrecision) {
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

// Another rank of the approximation: directions of the old one neither fit nor are misread.
TEST_F(CommHooks, PowerSgdGoesOnWithAnotherRankOfTheApproximation) {
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

TEST_F(CommHooks, PowerSgdSaysThatItGoesOnFromTheStateOfItsOtherForm) {
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

TEST_F(CommHooks, AStateOfPowerSgdThatDoesNotHangTogetherIsRefused) {
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
