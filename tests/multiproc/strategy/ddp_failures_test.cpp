// Training goes wrong on one rank: the others say so soon, and nobody hangs.
#include <unistd.h>

#include <csignal>

#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

// From the moment that a rank goes wrong to the end of the last of the others; see
// comm_failures_test.cpp.
constexpr seconds kSoon{10};
// For the test that waits for it.
constexpr seconds kShort{3};

AcceleratorOptions with_long_timeout() {
  AcceleratorOptions options = on_cpu();
  options.process_group.timeout = minutes(10);
  return options;
}

struct Refusal : std::runtime_error {
  Refusal() : std::runtime_error("the input is not to my taste") {}
};

// Fails in forward or in backward where it is told to.
struct ThrowInBackward : torch::autograd::Function<ThrowInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw Refusal();
  }
};

struct Fragile : torch::nn::Module {
  Fragile()
      : first(register_module("first", torch::nn::Linear(6, 5))),
        second(register_module("second", torch::nn::Linear(5, 3))) {}
  at::Tensor forward(at::Tensor input, const std::string& fail_in) {
    if (fail_in == "forward") throw Refusal();
    at::Tensor hidden = first(input);
    if (fail_in == "backward") hidden = ThrowInBackward::apply(hidden);
    return second(hidden);
  }

  torch::nn::Linear first, second;
};

struct DdpFailures : Ranks {
  // Rank 1 of three fails in its third step.
  void fail_in(const std::string& where) {
    spawn(3, [where](const Rank& rank) {
      Accelerator accelerator(with_long_timeout());
      auto net = std::make_shared<Fragile>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int step = 0; step < 10; ++step) {
        optimizer.zero_grad();
        const bool now = step == 2 && rank.rank == 1;
        if (now) rank.reach(1);
        accelerator.backward(model(ones({2, 6}), now ? where : "").sum());
        wait_for_exchanges();
        optimizer.step();
      }
    });
    ASSERT_TRUE(wait_for_stage(1, 1));
    const auto failed = std::chrono::steady_clock::now();
    EXPECT_EQ(exit_code_of(1), kExitOtherException);
    EXPECT_THAT(error_of(1), HasSubstr("the input is not to my taste"));
    for (int rank : {0, 2}) {
      EXPECT_EQ(exit_code_of(rank), kExitCommError);
      EXPECT_THAT(error_of(rank), AllOf(HasSubstr("[rank " + std::to_string(rank) + " of 3]"),
                                        HasSubstr("backward"), HasSubstr("rank 1 ")));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - failed, kSoon);
  }
};

TEST_F(DdpFailures, AnExceptionInForwardOnOneRankIsACommErrorOnTheOthers) { fail_in("forward"); }

TEST_F(DdpFailures, AnExceptionInAutogradOnOneRankIsACommErrorOnTheOthers) { fail_in("backward"); }

TEST_F(DdpFailures, ARankThatIsKilledWhileTrainingIsNamedByTheOthers) {
  spawn(3, [](const Rank& rank) {
    Accelerator accelerator(with_long_timeout());
    auto net = std::make_shared<Fragile>();
    torch::optim::SGD sgd(net->parameters(), 0.001);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (int step = 0;; ++step) {
      optimizer.zero_grad();
      accelerator.backward(model(ones({2, 6}), "").sum());
      wait_for_exchanges();
      optimizer.step();
      if (step == 3) rank.reach(1);
    }
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  kill_rank(2, SIGKILL);
  for (int rank : {0, 1}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr("backward"), HasSubstr("rank 2 ")));
  }
  EXPECT_LT(elapsed(), kSoon);
}

TEST_F(DdpFailures, ARankThatTrainsFewerStepsIsNamedByTheOthers) {
  spawn(2, [](const Rank& rank) {
    Accelerator accelerator(with_long_timeout());
    auto model = accelerator.prepare(std::make_shared<Fragile>());
    for (int step = 0; step < 5 - rank.rank; ++step) {
      accelerator.backward(model(ones({2, 6}), "").sum());
      wait_for_exchanges();
    }
    if (rank.rank == 0) accelerator.wait_for_everyone();  // over NCCL it is this that throws
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  const auto left = std::chrono::steady_clock::now();
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_LT(std::chrono::steady_clock::now() - left, kSoon);
  EXPECT_THAT(error_of(0), AllOf(HasSubstr("backward"), HasSubstr("rank 1 ")));
}

// Rank 1 is stopped, so that the backward pass of rank 2 waits for the reduction of gradients,
// which c10d's reducer does inside of libtorch. Rank 0, whose timeout is short, raises the alarm.
TEST_F(DdpFailures, ARankThatHangsInABackwardPassIsWokenByTheAlarmOfAnother) {
  spawn(3, [](const Rank& rank) {
    AcceleratorOptions options = with_long_timeout();
    if (rank.rank == 0) options.process_group.timeout = kShort;
    Accelerator accelerator(options);
    auto model = accelerator.prepare(std::make_shared<Fragile>());
    for (int step = 0; step < 2; ++step) accelerator.backward(model(ones({2, 6}), "").sum());
    rank.reach(1);
    if (rank.rank == 1) pause();
    rank.wait_for(1, 1);
    rank.wait_for(0, 1);
    accelerator.backward(model(ones({2, 6}), "").sum());
    wait_for_exchanges();
    accelerator.wait_for_everyone();
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  stop_rank(1);
  for (int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr("backward"), HasSubstr("rank 1 did not arrive")));
  }
  EXPECT_GE(elapsed(), kShort);
  EXPECT_LT(elapsed(), kShort + kSoon);
  kill_rank(1, SIGKILL);
}

TEST_F(DdpFailures, ARankThatNeverPreparesIsNamedAfterTheTimeout) {
  spawn(2, [](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = kShort;
    Accelerator accelerator(options);
    accelerator.wait_for_everyone();
    if (rank.rank == 1) {
      rank.wait_for(0, 1);
      return;
    }
    try {
      (void)accelerator.prepare(std::make_shared<Fragile>());
    } catch (const CommError&) {
      rank.reach(1);
      throw;
    }
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_THAT(error_of(0), AllOf(HasSubstr("rank 1 "), HasSubstr("barrier")));
}

// What one sends is longer than what the other expects, which Gloo finds on a thread of its own.
// Another accelerator of the process may have ended by then.
TEST_F(DdpFailures, AMessageThatIsTooLongIsToldAsAnErrorOfTheCall) {
  if (wanted_test_device() == TestDevice::kGpuOverNccl) {
    GTEST_SKIP() << "numbers of the host and gradients do not meet: these go by NCCL";
  }
  for (const bool another_has_ended : {false, true}) {
    spawn(2, [another_has_ended](const Rank& rank) {
      Accelerator accelerator(with_long_timeout());
      if (another_has_ended) Accelerator(with_long_timeout()).wait_for_everyone();
      auto model = accelerator.prepare(
          std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(1, 1).bias(false)));
      for (int step = 0; step < 8; ++step) {
        at::Tensor number = at::ones({1}, at::kLong);
        if (rank.rank == 0 && step == 2) accelerator.communicator().all_reduce(number);
        accelerator.backward(model(ones({1, 1})).sum());
        model.zero_grad();
      }
    });
    EXPECT_EQ(exit_code_of(1), kErrorExitCode);  // as run() ends it; it used to abort
    EXPECT_THAT(
        output_of(1),
        AllOf(HasSubstr("CommError: collective #"), HasSubstr(" backward failed: a message "),
              HasSubstr("all ranks must make the same calls in the same order")));
    EXPECT_EQ(exit_code_of(0), kExitCommError) << error_of(0);
    EXPECT_LT(elapsed(), kSoon);
  }
}

}  // namespace
}  // namespace accelerate::test
