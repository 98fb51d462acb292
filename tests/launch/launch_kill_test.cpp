// kill -9 on one machine; see killing.h.
#include <gmock/gmock.h>

#include "launch/killing.h"

namespace accelerate::test {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

TEST_F(Killing, TheLauncherAtAnyTimeLeavesNothing) {
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    auto run = start_script(3, kBusyWorker);
    if (draw(2) == 0) run->wait_for_output("ready", 1 + draw(3));
    pause_up_to(40);
    run->signal(SIGKILL);
    EXPECT_EQ(run->wait().exit_code, 128 + SIGKILL);
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyWorkerAtAnyTimeIsNamedAndEndsTheJob) {
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const int victim = draw(3);
    auto run = start_script(3, "echo $RANK: $$.\n" + std::string(kBusyWorker));
    const std::string mark = std::to_string(victim) + ": ";
    run->wait_for_output(mark);
    run->wait_for_output(".", 3);
    pause_up_to(30);
    const pid_t pid = std::stoi(run->out().substr(run->out().find(mark) + mark.size()));
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    const RunResult result = run->wait();
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    EXPECT_THAT(result.err, HasSubstr("error: rank " + std::to_string(victim) + " of 3 on "));
    EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (SIGKILL)"));
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyProcessOfARestartingJobLeavesNothingBehind) {
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    // Fails by itself every now and then, so that restarts are hit too.
    auto run =
        start_script(2, "[ $RANK = 1 ] && { sleep 0.03; exit 4; }\n" + std::string(kBusyWorker),
                     {"--max_restarts", "2"});
    pause_up_to(250);
    if (const pid_t pid = draw_process(run->pid()); pid != 0) kill(pid, SIGKILL);
    const RunResult result = run->wait();
    EXPECT_THAT(result.exit_code, AnyOf(Eq(4), Eq(128 + SIGKILL))) << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: rank "));
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyRankOfAProgramOfTheLibraryIsNamed) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    auto run = start({"launch", "--cpu", "--num_processes", "2", RANK_PROGRAM, "steps", "100000"});
    // Before, while and after the ranks meet.
    if (draw(3) > 0) run->wait_for_output("begins", 1 + draw(2));
    pause_up_to(100);
    const pid_t pid = draw_process(run->pid());
    if (pid == 0 || command_of(pid) != RANK_PROGRAM) {
      run->signal(SIGTERM);
      EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
      continue;
    }
    kill(pid, SIGKILL);
    const RunResult result = run->wait();
    EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
    EXPECT_THAT(result.err, HasSubstr("(rank_program, pid " + std::to_string(pid) + ")"));
    expect_no_process_left();
  }
}

}  // namespace
}  // namespace accelerate::test
