#include "launch/output/failure_report.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;

int exited(int code) { return code << 8; }  // as waitpid encodes it
int signaled(int signal) { return signal; }

WorkerEnd end_of(int rank, int wait_status, WorkerFate fate, milliseconds after = milliseconds(0)) {
  return {
      .rank = rank, .pid = 1000 + rank, .wait_status = wait_status, .after = after, .fate = fate};
}

TEST(FailureReport, NamesTheFirstFailureItsLastLinesAndTheFateOfTheOthers) {
  WorkerEnd failed = end_of(1, exited(3), WorkerFate::kFailed, milliseconds(12'340));
  failed.last_lines = {"loading shard 17", "shard 17 is missing"};
  LaunchOutcome outcome;
  outcome.ends = {failed, end_of(4, exited(1), WorkerFate::kFailed, milliseconds(12'345)),
                  end_of(0, signaled(SIGTERM), WorkerFate::kStopped),
                  end_of(2, signaled(SIGTERM), WorkerFate::kStopped),
                  end_of(3, signaled(SIGKILL), WorkerFate::kKilled)};
  outcome.grace = milliseconds(5'000);
  EXPECT_EQ(failure_report(outcome),
            "error: rank 1 of 5 exited with status 3 after 12.3 s (pid 1001)\n"
            "  its last lines:\n"
            "    | loading shard 17\n"
            "    | shard 17 is missing\n"
            "  then rank 4 exited with status 1, 5 ms later\n"
            "  ranks 0 and 2 were stopped\n"
            "  rank 3 did not stop within 5.00 s and was killed\n");
  EXPECT_EQ(outcome.exit_code(), 3);
}

TEST(FailureReport, ManyThatFailAlikeAreOneLine) {
  LaunchOutcome outcome;
  for (int rank = 0; rank < 100; ++rank) {
    outcome.ends.push_back(end_of(rank, exited(rank == 42 ? 7 : 1), WorkerFate::kFailed,
                                  milliseconds(rank == 42 ? 10 : 20 + rank)));
  }
  EXPECT_EQ(failure_report(outcome),
            "error: rank 42 of 100 exited with status 7 after 10 ms (pid 1042)\n"
            "  it wrote nothing\n"
            "  then ranks 0 to 41 and 43 to 99 exited with status 1, 10 ms later\n");
}

TEST(FailureReport, NamesTheProgram) {
  LaunchOutcome outcome;
  outcome.program = "train";
  outcome.ends = {end_of(0, exited(1), WorkerFate::kFailed, milliseconds(4))};
  EXPECT_EQ(failure_report(outcome),
            "error: rank 0 of 1 exited with status 1 after 4 ms (train, pid 1000)\n"
            "  it wrote nothing\n");
}

TEST(FailureReport, ExplainsASignal) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, exited(0), WorkerFate::kSucceeded),
                  end_of(1, signaled(SIGSEGV), WorkerFate::kFailed, milliseconds(420))};
  EXPECT_EQ(failure_report(outcome),
            "error: rank 1 of 2 was killed by signal 11 (SIGSEGV) after 420 ms (pid 1001)\n"
            "  it wrote nothing\n"
            "  rank 0 had ended without error\n");
  EXPECT_EQ(outcome.exit_code(), 139);
}

TEST(FailureReport, PointsAtTheMemoryWhenAWorkerWasKilledFromOutside) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, signaled(SIGKILL), WorkerFate::kFailed)};
  EXPECT_EQ(failure_report(outcome),
            "error: rank 0 of 1 was killed by signal 9 (SIGKILL) after 0 ms (pid 1000)\n"
            "  it wrote nothing\n"
            "  try  `dmesg | tail`: the kernel kills a process like this when memory runs out\n");
  EXPECT_EQ(outcome.exit_code(), 137);
}

TEST(FailureReport, IsShortWhenTheUserStoppedTheJob) {
  LaunchOutcome outcome;
  outcome.stop_signal = SIGINT;
  for (int rank = 0; rank < 5; ++rank) {
    outcome.ends.push_back(end_of(rank, signaled(SIGINT), WorkerFate::kStopped));
  }
  EXPECT_EQ(failure_report(outcome),
            "accelerate launch: stopped by SIGINT\n"
            "  ranks 0 to 4 were stopped\n");
  EXPECT_EQ(outcome.exit_code(), 130);
}

TEST(FailureReport, SaysNothingWhenAllWentWell) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, exited(0), WorkerFate::kSucceeded)};
  EXPECT_EQ(failure_report(outcome), "");
  EXPECT_EQ(failure_summary(outcome), "");
  EXPECT_EQ(outcome.exit_code(), 0);
}

TEST(FailureReport, TellsAStopSignalAlsoWhenAllWorkersSavedTheirWork) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, exited(0), WorkerFate::kSucceeded)};
  outcome.stop_signal = SIGTERM;
  EXPECT_EQ(failure_report(outcome),
            "accelerate launch: stopped by SIGTERM\n"
            "  rank 0 ended without error\n");
  EXPECT_EQ(outcome.exit_code(), 143);
}

TEST(FailureReport, AStopThatAllWorkersAnsweredWithOneCodeEndsWithThatCode) {
  LaunchOutcome outcome;
  outcome.stop_signal = SIGTERM;
  outcome.ends = {end_of(1, exited(75), WorkerFate::kStopped),
                  end_of(0, exited(75), WorkerFate::kStopped)};
  EXPECT_EQ(outcome.exit_code(), 75);
  EXPECT_EQ(failure_report(outcome),
            "accelerate launch: stopped by SIGTERM\n"
            "  ranks 0 and 1 exited with status 75\n");
  outcome.ends[1].wait_status = exited(74);
  EXPECT_EQ(outcome.exit_code(), 143);
  EXPECT_EQ(failure_report(outcome),
            "accelerate launch: stopped by SIGTERM\n"
            "  ranks 0 and 1 were stopped\n");
  outcome.ends[1].wait_status = signaled(SIGTERM);
  EXPECT_EQ(outcome.exit_code(), 143);
}

TEST(FailureReport, WhatMpirunSaysWhenItIsStoppedIsNotTheWordOfTheRanks) {
  LaunchOutcome outcome;
  outcome.workers = "mpirun";
  outcome.stop_signal = SIGTERM;
  outcome.ends = {end_of(0, exited(1), WorkerFate::kStopped)};
  EXPECT_EQ(outcome.exit_code(), 143);
}

TEST(FailureReport, NamesTheMachineAndTheException) {
  WorkerEnd failed = end_of(2, exited(1), WorkerFate::kFailed, milliseconds(70));
  failed.host = "node7";
  failed.exception = "std::runtime_error: the disk is full";
  failed.last_lines = {"bye"};
  LaunchOutcome outcome;
  outcome.world_size = 4;
  outcome.ends = {failed};
  EXPECT_EQ(failure_report(outcome),
            "error: rank 2 of 4 on node7 exited with status 1 after 70 ms (pid 1002)\n"
            "  it said: std::runtime_error: the disk is full\n"
            "  its last line:\n"
            "    | bye\n");
  EXPECT_EQ(failure_summary(outcome),
            "error: rank 2 of 4 on node7 exited with status 1 after 70 ms (pid 1002)\n"
            "  it said: std::runtime_error: the disk is full\n");
}

TEST(FailureReport, WhoToldTheLauncherSomethingDidNotWriteNothing) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, exited(2), WorkerFate::kFailed, milliseconds(4))};
  outcome.ends[0].error = "train: --lr needs a value";
  EXPECT_EQ(failure_report(outcome),
            "error: rank 0 of 1 exited with status 2 after 4 ms (pid 1000)\n"
            "  it said: train: --lr needs a value\n");
}

TEST(FailureReport, TheFirstFailureIsTheOneThatHappenedFirstNotTheOneThatWasToldFirst) {
  LaunchOutcome outcome;
  outcome.ends = {end_of(0, exited(4), WorkerFate::kFailed, milliseconds(130)),
                  end_of(1, exited(3), WorkerFate::kFailed, milliseconds(120))};
  EXPECT_EQ(outcome.first_failure()->rank, 1);
  EXPECT_EQ(outcome.exit_code(), 3);
}

TEST(FailureReport, AWorkerThatOnlyLostAPeerIsNotTheCauseEvenIfItWasSeenFirst) {
  WorkerEnd observer = end_of(0, exited(1), WorkerFate::kFailed, milliseconds(100));
  observer.exception = "[rank 0 of 3] CommError: rank 1 is gone";
  WorkerEnd culprit = end_of(1, exited(3), WorkerFate::kFailed, milliseconds(101));
  WorkerEnd stopped = end_of(2, exited(9), WorkerFate::kFailed, milliseconds(103));
  observer.unasked = culprit.unasked = true;
  LaunchOutcome outcome;
  outcome.ends = {observer, culprit, stopped};
  EXPECT_EQ(outcome.first_failure()->rank, 1);
  outcome.ends = {observer, stopped};  // that one failed only because it was asked to stop
  EXPECT_EQ(outcome.first_failure()->rank, 0);
}

TEST(FailureReport, ALostMachineIsTheCauseOfWhatFailedAfterIt) {
  LaunchOutcome outcome;
  outcome.world_size = 2;
  outcome.lost_machine = "machine 1 (b) was lost: its connection ended";
  outcome.ends = {end_of(0, exited(1), WorkerFate::kFailed)};
  EXPECT_EQ(failure_report(outcome),
            "error: machine 1 (b) was lost: its connection ended\n"
            "  then rank 0 exited with status 1\n");
  EXPECT_EQ(outcome.exit_code(), kLostMachineExitCode);
}

TEST(FailureReport, CallsAStarterByItsNameAndDoesNotRepeatItsOutput) {
  WorkerEnd failed = end_of(0, exited(3), WorkerFate::kFailed, milliseconds(5));
  failed.last_lines = {"rank 1 broke"};
  LaunchOutcome outcome;
  outcome.ends = {failed};
  outcome.workers = "mpirun";
  EXPECT_EQ(failure_report(outcome), "error: mpirun exited with status 3 after 5 ms (pid 1000)\n");
}

TEST(FailureReport, NamesTheMachineThatSshCouldNotReach) {
  WorkerEnd failed = end_of(1, exited(255), WorkerFate::kFailed, milliseconds(5));
  failed.host = "here";
  const LaunchOutcome outcome{.ends = {failed},
                              .world_size = 2,
                              .workers = "ssh to machine",
                              .led_to = {"node1", "node2"},
                              .has_agents = true};
  EXPECT_EQ(failure_report(outcome),
            "error: ssh to machine 1 of 2 (node2) on here exited with status 255 after 5 ms (pid "
            "1001)\n"
            "  try  ssh node2 true\n");
}

TEST(FailureReport, SaysNothingAgainThatLaunchersBehindSshOrSrunHaveSaid) {
  LaunchOutcome outcome{
      .ends = {end_of(0, exited(134), WorkerFate::kFailed)}, .workers = "srun", .has_agents = true};
  EXPECT_EQ(failure_report(outcome), "");
  EXPECT_EQ(failure_summary(outcome), "");
  EXPECT_EQ(outcome.exit_code(), 134);
  for (const int status : {exited(127), exited(126), exited(255), signaled(SIGKILL)}) {
    outcome.ends = {end_of(0, status, WorkerFate::kFailed)};
    EXPECT_NE(failure_report(outcome), "") << status;
  }
}

TEST(FailureReport, HasACauseAndConsequences) {
  WorkerEnd failed = end_of(1, exited(3), WorkerFate::kFailed, milliseconds(12'340));
  failed.last_lines = {"shard 17 is missing"};
  const LaunchOutcome outcome{.ends = {failed, end_of(0, signaled(SIGTERM), WorkerFate::kStopped)}};
  EXPECT_EQ(failure_cause(outcome),
            "error: rank 1 of 2 exited with status 3 after 12.3 s (pid 1001)\n"
            "  its last line:\n"
            "    | shard 17 is missing\n");
  EXPECT_EQ(failure_consequences(outcome), "  rank 0 was stopped\n");
}

TEST(FailureReport, DurationsReadAsAPersonWouldSayThem) {
  EXPECT_EQ(describe_duration(milliseconds(7)), "7 ms");
  EXPECT_EQ(describe_duration(milliseconds(1'500)), "1.50 s");
  EXPECT_EQ(describe_duration(milliseconds(59'900)), "59.9 s");
  EXPECT_EQ(describe_duration(milliseconds(185'000)), "3 min 05 s");
  EXPECT_EQ(describe_duration(milliseconds(7'500'000)), "2 h 05 min");
}

}  // namespace
}  // namespace accelerate::launch
