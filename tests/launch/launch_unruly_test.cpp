// Workers that do not behave.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "launch/launcher_run.h"
#include "launch/plan/command_line.h"

namespace accelerate::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(Launcher, MegabytesOnBothStreamsArriveWhole) {
  const std::string logs = (folder_.path() / "logs").string();
  const RunResult result = run_script(2, R"(
head -c 6000000 /dev/zero | tr '\0' "$RANK" & head -c 6000000 /dev/zero | tr '\0' x >&2; wait)",
                                      {"--log_dir", logs, "--tee", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.size(), 12'000'000u);
  EXPECT_EQ(result.err.size(), 12'000'000u);
  EXPECT_EQ(std::filesystem::file_size(logs + "/rank_1/stdout.log"), 6'000'000u);
  EXPECT_EQ(std::filesystem::file_size(logs + "/rank_0/stderr.log"), 6'000'000u);
}

TEST_F(Launcher, AWorkerThatClosesItsStreamsIsStillWaitedFor) {
  // When rank 0 is gone the launcher has been at work after both ranks closed their streams.
  const RunResult result = run_script(2, R"(
echo last word
exec > /dev/null 2>&1 <&-
if [ $RANK = 0 ]; then
  until [ -e "$0.closed" ]; do sleep 0.02; done
  echo $$ > "$0.pid"
  exit 0
fi
touch "$0.closed"
until [ -s "$0.pid" ]; do sleep 0.02; done
while kill -0 $(cat "$0.pid"); do sleep 0.02; done
exit 3)");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "last word\nlast word\n");
  EXPECT_THAT(result.err, HasSubstr("    | last word\n"));
}

TEST_F(Launcher, WorkersThatForkWithoutEndAreGoneAfterTheFailure) {
  const RunResult result = run_script(2, R"(
for i in 1 2 3 4 5 6; do (setsid sh -c 'sleep 600 & sleep 600 & wait' &) ; sleep 600 & done
[ $RANK = 1 ] && exit 8
wait)",
                                      {"--grace_period", "0.5"});
  EXPECT_EQ(result.exit_code, 8);
  expect_no_process_left();
}

TEST_F(Launcher, DeafWorkersAreKilledBetweenAttemptsToo) {
  const RunResult result = run_script(2, R"(
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
if [ $RANK = 0 ]; then trap '' TERM INT HUP; touch "$0.deaf"; while :; do sleep 0.05; done; fi
until [ -e "$0.deaf" ]; do sleep 0.02; done
exit 5)",
                                      {"--grace_period", "0.3", "--max_restarts", "1"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, ContainsRegex("  rank 0 did not stop within [0-9.]+ m?s and was killed"));
}

TEST_F(Launcher, AWorkerThatStopsItselfIsKilledWithTheJob) {
  auto run = start_script(2, "echo ready; kill -STOP $$; echo never", {"--grace_period", "0.3"});
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Launcher, AnInterruptWhileARestartIsUnderWayEndsTheJob) {
  // Not by a status of its own: one with which all workers leave after a signal is passed on.
  auto run = start_script(1, "echo begun; sleep 0.02; kill -KILL $$", {"--max_restarts", "1000"});
  run->wait_for_output("begun", 3);
  run->signal(SIGINT);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGINT);
}

TEST_F(Launcher, AWorkerMayBeALauncherItself) {
  const std::string inner = folder_.write("inner.sh", "echo $RANK of $WORLD_SIZE; $1");
  const std::string nested =
      "exec " ACCELERATE_PROGRAM " launch --cpu --num_processes 3 sh " + inner + " ";
  const RunResult result = run_script(2, nested + "true");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"0 of 3", "0 of 3", "1 of 3", "1 of 3", "2 of 3", "2 of 3"}));

  auto run = start_script(2, nested + "'sleep 600'");
  run->wait_for_output("of 3", 6);
  run->signal(SIGKILL);
  run->wait();
  expect_no_process_left();
}

TEST_F(Launcher, TellsWhatItStartsWhenAsked) {
  const RunResult result = run_script(2, "exit 0", {"--debug"});
  EXPECT_THAT(result.err, ContainsRegex("accelerate launch: .*/sh .*worker.sh\n"));
  EXPECT_THAT(result.err, ContainsRegex("accelerate launch: rank 1 is process [0-9]+ on [^ ]+\n"));
  EXPECT_EQ(run_script(2, "exit 0").err, "");
}

TEST_F(Launcher, TheExceptionOfAPythonProgramIsNamed) {
  const std::string file = folder_.write("train.py",
                                         "def step():\n"
                                         "    raise ValueError('batch 7 is empty')\n"
                                         "step()\n");
  if (launch::find_python().empty()) GTEST_SKIP() << "this machine has no Python";
  const RunResult result = run({"launch", "--num_processes", "1", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("  it said: ValueError: batch 7 is empty\n"));
}

}  // namespace
}  // namespace accelerate::test
