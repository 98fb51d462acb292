// Faults that come from inside a rank, drawn at random: rows 13, 14 and 18 of docs/faults.md. What
// is drawn comes from a fixed seed; ACCELERATE_KILL_SEED=N draws others, ACCELERATE_FAULT_ROUNDS=N
// makes that many rounds.
#include <accelerate/find_batch_size.h>
#include <accelerate/grad_scaler.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "multiproc/strategy/replicas.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

int number_from(const char* variable, int otherwise) {
  const char* named = std::getenv(variable);
  return named != nullptr ? std::atoi(named) : otherwise;
}

std::mt19937 seeded() {
  return std::mt19937(static_cast<unsigned>(number_from("ACCELERATE_KILL_SEED", 20'210)));
}

int draw(std::mt19937& random, int below) {
  return static_cast<int>(random() % static_cast<unsigned>(below));
}

struct FaultSamples : Replicas {};

// Row 13.
TEST_F(FaultSamples, AGradientThatIsNotFiniteOnAnyRankIsSkippedByAllAlike) {
  const int steps = std::max(number_from("ACCELERATE_FAULT_ROUNDS", 100), 100);
  constexpr int kRanks = 3;
  const auto results = run_collect(kRanks, [steps](const Rank& rank) {
    std::mt19937 random = seeded();  // the same on all ranks
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::AdamW adamw(net->parameters(), 0.01);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
    std::vector<double> trace;
    for (int step = 0; step < steps; ++step) {
      const StepData data = data_of_step(step, kRows * kRanks);
      optimizer.zero_grad();
      auto loss = loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank));
      const int victim = draw(random, 2 * kRanks);  // nobody, half of the time
      const bool is_nan = draw(random, 2) == 0;
      if (victim == rank.rank) {
        loss = loss * (is_nan ? std::numeric_limits<float>::quiet_NaN()
                              : std::numeric_limits<float>::infinity());
      }
      accelerator.backward(scaler.scale(loss));
      const bool stepped = scaler.step(adamw);
      scaler.update();
      if (stepped != (victim >= kRanks)) throw std::runtime_error("another step was skipped");
      trace.push_back(scaler.scale_factor());
    }
    for (const auto& parameter : net->parameters()) {
      const std::vector<double> values = flat({parameter});
      trace.insert(trace.end(), values.begin(), values.end());
    }
    return trace;
  });
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
  for (const double value : results[0]) ASSERT_TRUE(std::isfinite(value));
}

// Row 14.
TEST_F(FaultSamples, AHundredSearchesForABatchSizeLeaveNoMemoryBehind) {
  run(1, [](const Rank&) {
    const auto search = [] {
      return find_executable_batch_size(
          [](int64_t size) {
            std::vector<at::Tensor> held;  // what was allocated before it failed
            for (int i = 0; i < 8; ++i) held.push_back(torch::ones({64 << 10}));
            if (size > 1) held.push_back(torch::empty({int64_t{1} << 50}));
            return size;
          },
          {.starting_batch_size = 2});
    };
    const auto in_use = [] {
      const struct mallinfo2 info = mallinfo2();
      return static_cast<int64_t>(info.uordblks + info.hblkhd);
    };
    EXPECT_EQ(search(), 1);
    const int64_t before = in_use();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(search(), 1);  // one failure each
    EXPECT_LT(in_use() - before, int64_t{1} << 20);
  });
}

// A bit of the exponent of a parameter. What is as small as rounding is a warning, not an error.
void flip_bit(const at::Tensor& parameter, unsigned drawn) {
  constexpr unsigned kLowest = 23;
  constexpr unsigned kBits = 7;  // the uppermost makes everything infinite, on all ranks alike
  const torch::NoGradGuard no_grad;
  float* value = parameter.data_ptr<float>() + drawn % static_cast<unsigned>(parameter.numel());
  uint32_t bits = 0;
  std::memcpy(&bits, value, sizeof bits);
  bits ^= uint32_t{1} << (kLowest + drawn / 7 % kBits);
  std::memcpy(value, &bits, sizeof bits);
}

void flip_lowest_bit(const at::Tensor& values, unsigned drawn) {
  const torch::NoGradGuard no_grad;
  float* value = values.data_ptr<float>() + drawn % static_cast<unsigned>(values.numel());
  uint32_t bits = 0;
  std::memcpy(&bits, value, sizeof bits);
  bits ^= 1;
  std::memcpy(value, &bits, sizeof bits);
}

// Row 18. A pass has as many steps as each rank has batches; the bit flips in the second one.
TEST_F(FaultSamples, AFlippedBitOfAParameterIsFoundAtTheEndOfThePassAndItsRankIsOneOfTheNamed) {
  const int rounds = std::min(number_from("ACCELERATE_FAULT_ROUNDS", 6), 1000);
  std::mt19937 random = seeded();
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const int ranks = 2 + draw(random, 2);
    const int victim = draw(random, ranks);
    const int at_step = 1 + draw(random, 2);
    const unsigned drawn = static_cast<unsigned>(random());
    SCOPED_TRACE("round " + std::to_string(round) + ": rank " + std::to_string(victim) + " of " +
                 std::to_string(ranks) + ", step " + std::to_string(at_step) + ", " +
                 std::to_string(drawn));
    spawn(ranks, [=](const Rank& rank) {
      HalfPorted half;
      half.train();
      half.train([&](int steps) {
        if (steps != at_step || rank.rank != victim) return;
        const auto parameters = half.net->parameters();
        flip_bit(parameters[drawn / 3 % parameters.size()], drawn);
      });
      half.accelerator.wait_for_everyone();
    });
    const std::string who = "rank " + std::to_string(victim);
    expect_one_error_on_all(
        ranks, AllOf(HasSubstr("the ranks hold different parameters"),
                     AnyOf(HasSubstr("between " + who + " and"), HasSubstr("and " + who + "\n"),
                           HasSubstr("and " + who + " "), HasSubstr("and " + who + ":"),
                           HasSubstr("and " + who + ","))));
  }
}

// A net and its optimizer, which keeps state, compared after every second update.
void train_with_a_flip(int rank, int victim, int at_step, unsigned drawn) {
  Accelerator accelerator(on_cpu({.check_replicas_every = 2}));
  torch::manual_seed(3);
  auto net = std::make_shared<Mlp>();
  torch::optim::AdamW adamw(net->parameters(), 0.01);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  for (int step = 1; step <= 6; ++step) {
    const StepData data = data_of_step(step, kRows * accelerator.num_processes());
    accelerator.backward(loss_of(model(rows_of(data.input, rank)), rows_of(data.target, rank)));
    optimizer.step();
    optimizer.zero_grad();
    if (step != at_step || rank != victim) continue;
    const auto parameters = net->parameters();
    const at::Tensor& parameter = parameters[drawn / 3 % parameters.size()];
    auto& state = static_cast<torch::optim::AdamWParamState&>(
        *adamw.state().at(parameter.unsafeGetTensorImpl()));
    const bool of_parameter = drawn % 2 == 0;
    const at::Tensor& values = of_parameter ? parameter : state.exp_avg();
    flip_lowest_bit(values, drawn);
  }
}

// Row 18, with the option: the lowest bit of any value.
TEST_F(FaultSamples, AFlippedBitOfAParameterOrAnOptimizerIsFoundAtTheNextComparison) {
  const int rounds = std::min(number_from("ACCELERATE_FAULT_ROUNDS", 6), 1000);
  std::mt19937 random = seeded();
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const int ranks = 2 + round % 2;
    const int victim = draw(random, ranks);
    const int at_step = 2 + 2 * draw(random, 2);  // others may be lost in the next rounding
    const unsigned drawn = static_cast<unsigned>(random());
    SCOPED_TRACE("round " + std::to_string(round) + ": rank " + std::to_string(victim) + " of " +
                 std::to_string(ranks) + ", step " + std::to_string(at_step) + ", " +
                 std::to_string(drawn));
    spawn(ranks, [=](const Rank& rank) { train_with_a_flip(rank.rank, victim, at_step, drawn); });
    const std::string who =
        ranks == 2 ? " differs between rank 0 and rank 1"
                   : " on rank " + std::to_string(victim) + " differs from that of 2 other ranks";
    expect_one_error_on_all(
        ranks, AllOf(HasSubstr("the replicas came to differ in the last 2 updates: "),
                     HasSubstr(drawn % 2 == 0 ? "of model 0" : "exp_avg of "), HasSubstr(who)));
  }
}

TEST_F(FaultSamples, ReplicasThatAreComparedAndEqualTrainOn) {
  run(3, [](const Rank& rank) { train_with_a_flip(rank.rank, -1, 0, 0); });
}

// What trains a net whose optimizer keeps state, and is compared after every third update.
struct ComparedLoop {
  explicit ComparedLoop(int rank) : rank(rank) {}

  void train(
      int steps, const std::function<void()>& after = [] {}) {
    for (int step = 0; step < steps; ++step) {
      const StepData data = data_of_step(step, 2 * kRows);
      accelerator.backward(loss_of(model(rows_of(data.input, rank)), rows_of(data.target, rank)));
      optimizer.step();
      optimizer.zero_grad();
      after();
    }
  }

  int rank;
  Accelerator accelerator{on_cpu({.check_replicas_every = 3})};
  std::shared_ptr<Mlp> net = [] {
    torch::manual_seed(3);
    return std::make_shared<Mlp>();
  }();
  torch::optim::AdamW adamw{net->parameters(), 0.01};
  PreparedModel<Mlp> model = accelerator.prepare(net);
  PreparedOptimizer optimizer = accelerator.prepare(adamw);
};

// A join and LocalSgd leave each rank optimizer state of its own, for good.
TEST_F(FaultSamples, ReplicasAreNotComparedWhileTheRanksAreApartNorAfterwards) {
  run(2, [](const Rank& rank) {
    ComparedLoop loop(rank.rank);
    loop.train(1);
    loop.accelerator.join_uneven_inputs([&] { loop.train(4 + rank.rank); });
    loop.train(8);
  });
  run(2, [](const Rank& rank) {
    ComparedLoop loop(rank.rank);
    loop.train(1);
    {
      LocalSgd local_sgd(loop.accelerator.communicator(), loop.model, {.local_sgd_steps = 4});
      loop.train(8, [&] { local_sgd.step(); });
      local_sgd.finish();
    }
    loop.train(8);
  });
}

TEST_F(FaultSamples, ReplicasAreComparedAfterALocalSgdThatMadeNoUpdate) {
  spawn(2, [](const Rank& rank) {
    ComparedLoop loop(rank.rank);
    loop.train(1);
    { LocalSgd local_sgd(loop.accelerator.communicator(), loop.model, {.local_sgd_steps = 4}); }
    loop.train(2);
    if (rank.rank == 1) flip_lowest_bit(loop.net->parameters()[0], 0);
    loop.train(1);
  });
  expect_one_error_on_all(2, HasSubstr("'first.weight' of model 0 differs between rank 0"));
}

TEST_F(FaultSamples, AnIntervalBelowZeroIsRefused) {
  spawn(2,
        [](const Rank&) { const Accelerator accelerator(on_cpu({.check_replicas_every = -1})); });
  expect_one_error_on_all(2, HasSubstr("check_replicas_every = -1 is not a number of updates"));
}

}  // namespace
}  // namespace accelerate::test
