// The runner of the self-test, with checks that fail.
#include "selftest/runner.h"

#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "selftest/expect.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using selftest::Check;
using selftest::CheckResult;
using selftest::Findings;
using selftest::Mismatch;
using selftest::Runner;
using selftest::Skipped;
using selftest::Status;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct SelftestRunner : Ranks {};

// The ranks of the fixture with a runner on each.
struct Bench {
  ProcessState state = ProcessState::from_environment({.cpu = true});
  Communicator control{state, {.timeout = kPatience, .rendezvous_timeout = kPatience}};
  Runner runner{control, kPatience};

  static constexpr auto kPatience = kUnreachedTimeout;

  CheckResult run(std::function<Findings(Accelerator&)> body) {
    AcceleratorOptions options = selftest::plain_options();
    options.cpu = true;
    return runner.run(
        {.family = "family", .name = "name", .options = options, .run = std::move(body)});
  }
};

std::vector<int> failing_ranks(const CheckResult& result) {
  std::vector<int> ranks;
  for (const auto& failure : result.failures) ranks.push_back(failure.rank);
  return ranks;
}

TEST_F(SelftestRunner, ACheckThatPassesTellsWhatTheMainProcessFound) {
  run(2, [](const Rank& rank) {
    const CheckResult result = Bench().run([&](Accelerator& accelerator) -> Findings {
      accelerator.wait_for_everyone();
      return {.detail = "rank " + std::to_string(rank.rank), .metrics = {{"speed", 1.5}}};
    });
    EXPECT_EQ(result.status, Status::kPassed);
    EXPECT_EQ(result.family, "family");
    EXPECT_EQ(result.name, "name");
    EXPECT_EQ(result.detail, "rank 0");
    ASSERT_THAT(result.metrics, SizeIs(1));
    EXPECT_EQ(result.metrics[0].name, "speed");
    EXPECT_EQ(result.metrics[0].value, 1.5);
    EXPECT_THAT(result.failures, IsEmpty());
  });
}

TEST_F(SelftestRunner, AMismatchOnOneRankFailsTheCheckAndNamesTheRank) {
  run(3, [](const Rank& rank) {
    const CheckResult result = Bench().run([&](Accelerator&) -> Findings {
      selftest::expect_equal("sum", rank.rank == 2 ? 4 : 3, 3);
      return {.detail = "fine"};
    });
    EXPECT_EQ(result.status, Status::kFailed);
    EXPECT_EQ(result.detail, "");
    EXPECT_THAT(failing_ranks(result), ElementsAre(2));
    EXPECT_EQ(result.failures[0].text, "sum: expected 3, got 4");
  });
}

TEST_F(SelftestRunner, ARankThatThrowsDoesNotHoldUpThoseThatWaitForIt) {
  run(3, [](const Rank& rank) {
    Bench bench;
    const CheckResult result = bench.run([&](Accelerator& accelerator) -> Findings {
      if (rank.rank == 1) throw std::runtime_error("broken");
      accelerator.wait_for_everyone();
      return {};
    });
    EXPECT_EQ(result.status, Status::kFailed);
    // The others only lost a peer.
    EXPECT_THAT(failing_ranks(result), ElementsAre(1));
    EXPECT_EQ(result.failures[0].text, "broken");

    // And the next check runs on all ranks.
    const CheckResult next = bench.run([&](Accelerator& accelerator) -> Findings {
      const at::Tensor sum = accelerator.reduce(torch::ones({1}));
      selftest::expect_same("sum", sum, torch::full({1}, 3.0F));
      return {};
    });
    EXPECT_EQ(next.status, Status::kPassed);
  });
}

TEST_F(SelftestRunner, ARankThatCannotMakeItsAcceleratorFailsTheCheckAndLeavesNobodyWaiting) {
  run(3, [](const Rank& rank) {
    Bench bench;
    AcceleratorOptions options = selftest::plain_options();
    options.cpu = true;
    options.gradient_accumulation.steps = rank.rank == 1 ? 0 : 1;
    const auto wait = [](Accelerator& accelerator) -> Findings {
      accelerator.wait_for_everyone();
      return {};
    };
    for (const bool shares : {false, true}) {
      const CheckResult result = bench.runner.run({.family = "family",
                                                   .name = "name",
                                                   .options = options,
                                                   .run = wait,
                                                   .shares_accelerator = shares});
      EXPECT_EQ(result.status, Status::kFailed);
      EXPECT_THAT(failing_ranks(result), ElementsAre(1));
      EXPECT_EQ(result.failures[0].text,
                "a window of gradient accumulation has at least 1 step, got 0");
      EXPECT_EQ(bench.run(wait).status, Status::kPassed);
    }
  });
}

TEST_F(SelftestRunner, RanksThatThrowInTheMiddleOfTrainingLetTheOthersGo) {
  run(2, [](const Rank& rank) {
    const CheckResult result = Bench().run([&](Accelerator& accelerator) -> Findings {
      torch::nn::Linear line(2, 1);
      auto model = accelerator.prepare(line);
      const at::Tensor loss = model(torch::ones({4, 2})).sum();
      if (rank.rank == 0) throw Mismatch("expected another loss");
      accelerator.backward(loss);
      return {};
    });
    EXPECT_EQ(result.status, Status::kFailed);
    EXPECT_THAT(failing_ranks(result), ElementsAre(0));
    EXPECT_EQ(result.failures[0].text, "expected another loss");
  });
}

TEST_F(SelftestRunner, WhatIsNoStdExceptionIsAFailureToo) {
  run(2, [](const Rank&) {
    const CheckResult result = Bench().run([](Accelerator&) -> Findings { throw 7; });
    EXPECT_THAT(failing_ranks(result), ElementsAre(0, 1));
    EXPECT_EQ(result.failures[1].text, "an exception that is not a std::exception");
  });
}

TEST_F(SelftestRunner, ACheckIsSkippedOnlyIfAllRanksSaySo) {
  run(2, [](const Rank& rank) {
    Bench bench;
    const CheckResult all =
        bench.run([](Accelerator&) -> Findings { throw Skipped("no such device"); });
    EXPECT_EQ(all.status, Status::kSkipped);
    EXPECT_EQ(all.detail, "no such device");
    const CheckResult some = bench.run([&](Accelerator&) -> Findings {
      if (rank.rank == 1) throw Skipped("no such device");
      return {};
    });
    EXPECT_EQ(some.status, Status::kFailed);
    EXPECT_THAT(failing_ranks(some), ElementsAre(1));
    EXPECT_THAT(some.failures[0].text, HasSubstr("by this rank alone: no such device"));
  });
}

TEST_F(SelftestRunner, ChecksShareAnAcceleratorUntilOneFails) {
  run(2, [](const Rank& rank) {
    Bench bench;
    std::vector<const Communicator*> seen;
    const auto check = [&](bool shares, bool fails) {
      AcceleratorOptions options = selftest::plain_options();
      options.cpu = true;
      return bench.runner.run({.family = "family",
                               .name = "name",
                               .options = options,
                               .run = [&](Accelerator& accelerator) -> Findings {
                                 seen.push_back(&accelerator.communicator());
                                 accelerator.wait_for_everyone();
                                 if (fails && rank.rank == 1) throw Mismatch("broken");
                                 return {};
                               },
                               .shares_accelerator = shares});
    };
    EXPECT_EQ(check(true, false).status, Status::kPassed);
    EXPECT_EQ(check(true, false).status, Status::kPassed);
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(check(true, true).status, Status::kFailed);
    // On new connections, also on the rank that did not fail: else this would not end well.
    EXPECT_EQ(check(true, false).status, Status::kPassed);
    EXPECT_EQ(check(false, false).status, Status::kPassed);
    EXPECT_EQ(check(true, false).status, Status::kPassed);
  });
}

TEST_F(SelftestRunner, AloneItNeedsNoOthers) {
  run(1, [](const Rank&) {
    EXPECT_EQ(Bench().run([](Accelerator&) -> Findings { return {}; }).status, Status::kPassed);
  });
}

}  // namespace
}  // namespace accelerate::test
