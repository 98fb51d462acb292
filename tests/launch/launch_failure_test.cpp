// Jobs that break.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>

#include "launch/launcher_run.h"

namespace accelerate::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST_F(Launcher, AFailingRankStopsTheOthersAndIsNamedWithItsLastLines) {
  const RunResult result = run_script(3, R"(
if [ $RANK = 1 ]; then
  echo loading shard 17
  echo shard 17 is missing >&2
  exit 3
fi
exec sleep 600)");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 3 on [^ ]+ exited with status 3 after "));
  EXPECT_THAT(result.err, HasSubstr("    | loading shard 17\n"));
  EXPECT_THAT(result.err, HasSubstr("    | shard 17 is missing\n"));
  EXPECT_THAT(result.err, HasSubstr("  ranks 0 and 2 were stopped\n"));
}

TEST_F(Launcher, ReportsTheLastTwentyLinesOnly) {
  const RunResult result = run_script(1, R"(
i=0
while [ $i -lt 100 ]; do i=$((i+1)); echo line $i; done
exit 1)");
  EXPECT_THAT(result.err, HasSubstr("    | line 81\n"));
  EXPECT_THAT(result.err, HasSubstr("    | line 100\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("| line 80\n")));
}

TEST_F(Launcher, ReportsALastLineThatHasNoEnd) {
  const RunResult result = run_script(2, "[ $RANK = 0 ] || { printf 'half a li' >&2; exit 1; }");
  EXPECT_THAT(result.err, HasSubstr("    | half a li\n"));
}

TEST_F(Launcher, AKilledRankIsNamedWithItsSignal) {
  const RunResult result = run_script(2, "[ $RANK = 0 ] && exec sleep 600; kill -KILL $$");
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err,
              ContainsRegex("error: rank 1 of 2 on [^ ]+ was killed by signal 9 .SIGKILL. after "));
  EXPECT_THAT(result.err, HasSubstr("  rank 0 was stopped\n"));
}

TEST_F(Launcher, ARankThatDoesNotStopIsKilledAfterTheGracePeriod) {
  auto run = start_script(2, R"(
if [ $RANK = 0 ]; then
  trap '' TERM
  echo deaf
  while :; do sleep 1; done
fi
while [ ! -e "$0.go" ]; do sleep 0.05; done
exit 5)",
                          {"--grace_period", "0.2"});
  run->wait_for_output("deaf");
  folder_.write("worker.sh.go", "");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, ContainsRegex("  rank 0 did not stop within [0-9.]+ m?s and was killed"));
}

TEST_F(Launcher, AFailureIsToldWhileAnotherRankStillSavesItsWork) {
  auto run = start_script(2, R"(
if [ $RANK = 0 ]; then
  exec 2> /dev/null  # what the shell has to say of a killed sleep
  trap 'until [ -e "$0.saved" ]; do sleep 0.05; done; exit 0' TERM
  echo armed
  while :; do sleep 0.05; done
fi
while [ ! -e "$0.go" ]; do sleep 0.05; done
echo shard 17 is missing
exit 5)",
                          {"--grace_period", "3600"});
  run->wait_for_output("armed");
  folder_.write("worker.sh.go", "");
  run->wait_for_error("    | shard 17 is missing\n");
  folder_.write("worker.sh.saved", "");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, MatchesRegex("error: rank 1 of 2 on [^ ]+ exited with status 5 after "
                                       "[^\n]+\n  its last line:\n    \\| shard 17 is missing\n"
                                       "  rank 0 was stopped\n"));
}

TEST_F(Launcher, ARankThatEndedWellBeforeIsNotCalledStopped) {
  const RunResult result = run_script(2, R"(
if [ $RANK = 0 ]; then
  echo $$ > "$0.pid"
  exit 0
fi
until [ -s "$0.pid" ]; do sleep 0.02; done
while kill -0 $(cat "$0.pid") 2> /dev/null; do sleep 0.02; done
exit 4)");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 2 on [^ ]+ exited with status 4"));
  EXPECT_THAT(result.err, HasSubstr("  rank 0 had ended without error\n"));
}

TEST_F(Launcher, AnotherRankThatFailsOnBeingStoppedIsListedAfterTheFirst) {
  auto run = start_script(2, R"(
if [ $RANK = 0 ]; then
  trap 'exit 9' TERM
  echo armed
  while :; do sleep 0.05; done
fi
while [ ! -e "$0.go" ]; do sleep 0.05; done
exit 4)");
  run->wait_for_output("armed");
  folder_.write("worker.sh.go", "");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 2 on [^ ]+ exited with status 4"));
  EXPECT_THAT(result.err, ContainsRegex("  then rank 0 exited with status 9, [0-9.]+ m?s later"));
}

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// How often `part` occurs in `text`.
size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Launcher, AnErrorOfAllRanksIsPrintedOnce) {
  const std::string logs = folder_.path() / "logs";
  const RunResult result =
      run({"launch", "--cpu", "--num_processes", "3", "--log_dir", logs, RANK_PROGRAM, "refuse"});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(count_of(result.err, "the data have 3 columns"), 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("error: rank [012] of 3 on [^ ]+ exited with status 70 "));
  EXPECT_THAT(result.err, ContainsRegex("  it said: .rank [012] of 3. UsageError: the data have 3 "
                                        "columns, the model takes 4\n"
                                        "    at   rank_program\n    try  another model\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
  // Each rank's own file has its own copy.
  EXPECT_THAT(text_in(logs + "/rank_0/stderr.log"),
              HasSubstr("[rank 0 of 3] UsageError: the data have 3 columns, the model takes 4\n"));
}

TEST_F(Launcher, AnErrorOfOneRankIsPrintedOnceAndWithoutTheRuinsOfOthers) {
  const RunResult result =
      run({"launch", "--cpu", "--num_processes", "3", RANK_PROGRAM, "refuse", "1"});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(count_of(result.err, "the data have 3 columns"), 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 3 on [^ ]+ exited with status 70 "));
  for (const char* noise : {"terminate called", "frame #", "CommError"}) {
    EXPECT_THAT(result.err, Not(HasSubstr(noise)));
  }
}

TEST_F(Launcher, ARankThatEndsAfterThoseThatItFailedStillNamesTheCause) {
  const RunResult result =
      run({"launch", "--cpu", "--num_processes", "3", RANK_PROGRAM, "refuse", "1", "after_a_peer"});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 3 on [^ ]+ exited with status 70 "));
  EXPECT_THAT(result.err, HasSubstr("the data have 3 columns"));
  EXPECT_THAT(result.err, Not(HasSubstr("CommError")));
}

TEST_F(Launcher, WithoutALauncherTheErrorIsOnStandardErrorAlone) {
  const RunResult result = run({RANK_PROGRAM, "refuse"}, {.as_is = true});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(result.err,
            "[rank 0 of 1] UsageError: the data have 3 columns, the model takes 4\n"
            "  at   rank_program\n  try  another model\n");
}

TEST_F(Launcher, AnErrorThatAWorkerGetsOverIsShownAllTheSame) {
  const RunResult result =
      run_script(1, std::string("unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE\n") +
                        RANK_PROGRAM + " refuse\nexit 0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count_of(result.err, "UsageError: the data have 3 columns"), 1) << result.err;
}

TEST_F(Launcher, AMissingProgramIsAClearError) {
  const RunResult result = run({"launch", "--num_processes", "2", "./no/such/program"});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.err, "error: program './no/such/program' not found: no such file\n");
}

TEST_F(Launcher, AFileThatMayNotBeExecutedIsAClearError) {
  const std::string file = folder_.write("data.bin", "no program");
  const RunResult result = run({"launch", "--num_processes", "2", file});
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_THAT(result.err, HasSubstr("error: '" + file + "' may not be executed\n"));
}

TEST_F(Launcher, ADirectoryIsAClearError) {
  const std::string folder = folder_.path().string();
  const RunResult empty = run({"launch", folder});
  EXPECT_EQ(empty.exit_code, 126);
  EXPECT_EQ(empty.err, "error: '" + folder + "' is a directory, not a program\n" +
                           "  try  name the file of the program; this folder contains none\n");
  folder_.write("notes.txt", "");
  const std::string program = folder_.write("train", "#!/bin/sh\n", true);
  EXPECT_THAT(run({"launch", folder}).err,
              HasSubstr("  try  name a program in it: " + program + "\n"));
}

TEST_F(Launcher, AProgramThatTheKernelRefusesIsAClearError) {
  const std::string text = folder_.write("no_first_line", "just text\n", true);
  const RunResult refused = run({"launch", "--num_processes", "2", text});
  EXPECT_EQ(refused.exit_code, 126);
  EXPECT_THAT(refused.err, HasSubstr("error: cannot run '" + text + "': Exec format error\n"));

  const std::string script = folder_.write("bad_interpreter", "#!/no/such/interpreter\n", true);
  const RunResult missing = run({"launch", "--num_processes", "2", script});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("the interpreter in its first line"));
}

}  // namespace
}  // namespace accelerate::test
