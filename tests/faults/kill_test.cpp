// Ranks that are killed, or told to go, while they train: the job ends as if nothing had been.
#include "disturbed_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

constexpr int kKillsOfRun = 3;
constexpr int kLastStepToHit = 30;  // of 40

// Row 1 of docs/faults.md.
TEST_F(DisturbedTraining, AKilledRankAtAnyStepLeavesNoTraceInTheResult) {
  int killed = 0;
  const int rounds = fault_rounds(3);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const int ranks = 2 + round % 3;
    const std::string name = "run" + std::to_string(round);
    auto run = start_training(name, ranks, kKillsOfRun);
    int step = 0;
    for (int restart = 0; restart < kKillsOfRun; ++restart) {
      step += 1 + draw((kLastStepToHit - step) / (kKillsOfRun - restart));
      const int victim = draw(ranks);
      run->wait_for_output(" begins restart " + std::to_string(restart) + " at step", ranks);
      run->wait_for_output("restart " + std::to_string(restart) + " step " + std::to_string(step) +
                           " ");
      pause_up_to(8);  // a step and what is between steps: passes, exchanges, saves
      const pid_t pid = pid_of_rank(run->out(), victim, restart);
      ASSERT_GT(pid, 0);
      ASSERT_EQ(kill(pid, SIGKILL), 0);
      ++killed;
    }
    const RunResult result = run->wait();
    EXPECT_THAT(result.err, HasSubstr("starting again, restart 3 of 3\n"));
    expect_undisturbed(result, name, ranks);
    std::error_code error;
    std::filesystem::remove_all(project(name), error);
  }
  RecordProperty("killed", killed);
  std::printf("killed %d ranks in %d runs\n", killed, rounds);
}

// Row 12: one rank alone, or the same signal many times, or both kinds.
TEST_F(DisturbedTraining, ASignalToAnyRankSavesAllAtOneStepAndTheNextAttemptGoesOn) {
  const int rounds = fault_rounds(3);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    constexpr int kRanks = 2;
    const std::string name = "run" + std::to_string(round);
    auto run = start_training(name, kRanks, 1);
    run->wait_for_output("begins restart 0 at step", kRanks);
    run->wait_for_output("restart 0 step " + std::to_string(1 + draw(kLastStepToHit)) + " ");
    pause_up_to(8);  // some fall into a save
    const int times = round % 3 == 1 ? 20 : 1;
    for (int i = 0; i < times; ++i) {
      const pid_t pid = pid_of_rank(run->out(), draw(kRanks), 0);
      ASSERT_GT(pid, 0);
      kill(pid, draw(2) == 0 ? SIGUSR1 : SIGTERM);
      if (times > 1) pause_up_to(2);
    }
    const RunResult result = run->wait();
    // Of many signals one may come when the accelerator has gone and they end the process again.
    if (times == 1) EXPECT_THAT(result.err, HasSubstr("exited with status 75"));
    std::set<std::string> steps;
    for (const std::string& line : sorted_lines(result.out)) {
      const size_t at = line.find(" was preempted at ");
      if (at != std::string::npos) steps.insert(line.substr(at));
    }
    EXPECT_EQ(steps.size(), 1U) << result.out;
    expect_undisturbed(result, name, kRanks);
    std::error_code error;
    std::filesystem::remove_all(project(name), error);
  }
}

}  // namespace
}  // namespace accelerate::test
