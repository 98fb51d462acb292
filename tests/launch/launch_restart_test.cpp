// Jobs that begin anew, and what becomes of their output and their cores.
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "launch/launcher_run.h"
#include "launch/plan/machine.h"

namespace accelerate::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return stream ? text.str() : "(no file)";
}

TEST_F(Launcher, LogsOfAnEarlierRunAreKept) {
  const std::string logs = folder_.path() / "logs";
  const auto written = [&](const std::string& file) { return contents_of(logs + "/" + file); };
  EXPECT_EQ(run_script(2, "echo first", {"--log_dir", logs}).err, "");
  const RunResult second = run_script(2, "echo second", {"--log_dir", logs});
  EXPECT_EQ(second.err, "accelerate launch: " + logs +
                            " holds the output of an earlier run; this " + "one goes to " + logs +
                            "/run_2\n");
  run_script(2, "echo third", {"--log_dir", logs, "--quiet"});
  EXPECT_EQ(written("rank_1/stdout.log"), "first\n");
  EXPECT_EQ(written("run_2/rank_1/stdout.log"), "second\n");
  EXPECT_EQ(written("run_3/rank_1/stdout.log"), "third\n");
}

TEST_F(Launcher, AFailedJobBeginsAnewAsAWhole) {
  const RunResult result = run_script(2, R"(
echo "rank $RANK restart $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
[ $RANK = 0 ] && { touch "$0.begun"; exec sleep 600; }
until [ -e "$0.begun" ]; do sleep 0.02; done
exit 5)",
                                      {"--max_restarts", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 restart 0 of 3", "rank 0 restart 1 of 3", "rank 1 restart 0 of 3",
                          "rank 1 restart 1 of 3"));
  EXPECT_THAT(result.err, ContainsRegex("error: rank 1 of 2 on [^ ]+ exited with status 5"));
  EXPECT_THAT(result.err, HasSubstr("accelerate launch: starting again, restart 1 of 3\n"));
}

TEST_F(Launcher, AJobThatFailsOnceTooOftenEndsWithTheLastFailure) {
  const RunResult result =
      run_script(2, "[ $RANK = 0 ] || exit $((3 + TORCHELASTIC_RESTART_COUNT)); exec sleep 600",
                 {"--max_restarts", "2"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("starting again, restart 2 of 2\n"));
  EXPECT_THAT(result.err, ContainsRegex("rank 1 of 2 on [^ ]+ exited with status 5"));
}

TEST_F(Launcher, TheFailureIsToldAlsoIfTheRestartCannotBegin) {
  const std::string program =
      folder_.write("once", "#!/bin/sh\nrm \"$0\"; echo lost my shard >&2; exit 3\n", true);
  const RunResult result = run({"launch", "--num_processes", "1", "--max_restarts", "1", program});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, HasSubstr("exited with status 3"));
  EXPECT_THAT(result.err, HasSubstr("    | lost my shard\n"));
  EXPECT_THAT(result.err, HasSubstr("cannot run '" + program + "'"));
}

TEST_F(Launcher, NothingOfAnAttemptIsLeftWhenTheNextBegins) {
  const RunResult result = run_script(2, R"(
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
  setsid sleep 600 &
  echo $! > "$0.$RANK.pid"
  [ $RANK = 0 ] && exec sleep 600
  until [ -s "$0.0.pid" ]; do sleep 0.02; done
  exit 1
fi
kill -0 $(cat "$0.$RANK.pid") 2> /dev/null && echo alive || echo gone)",
                                      {"--max_restarts", "1"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "gone\ngone\n");
}

TEST_F(Launcher, AStopSignalEndsARestartedJob) {
  auto run = start_script(2,
                          "echo begun $TORCHELASTIC_RESTART_COUNT; [ "
                          "$RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 1; "
                          "exec sleep 600",
                          {"--max_restarts", "5"});
  run->wait_for_output("begun 1", 2);
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Launcher, EachAttemptMeetsAtAPortOfItsOwnUnlessTheUserNamedOne) {
  const std::string script = "echo $MASTER_PORT; exit $((1 - TORCHELASTIC_RESTART_COUNT))";
  const auto free = sorted_lines(run_script(1, script, {"--max_restarts", "1"}).out);
  ASSERT_EQ(free.size(), 2u);
  EXPECT_NE(free[0], free[1]);
}

TEST_F(Launcher, ARestartedProgramOfTheLibraryGoesOnWhereItWas) {
  const RunResult result =
      run({"launch", "--cpu", "--num_processes", "2", "--max_restarts", "1", RANK_PROGRAM, "steps",
           "10", "--resume", folder_.path().string(), "1:4:0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 begins restart 0 at step 0", "rank 0 begins restart 1 at step 5",
                          "rank 0 ended at step 10", "rank 1 begins restart 0 at step 0",
                          "rank 1 begins restart 1 at step 5", "rank 1 ended at step 10"));
  EXPECT_THAT(result.err,
              HasSubstr("  it said: std::runtime_error: the loss is not a number at step 4\n"));
}

TEST_F(Launcher, AWorkerOfAnEarlierAttemptCannotJoin) {
  // Rank 1 of the first attempt leaves a process behind that survives, as one on a machine that was
  // cut off would, and comes when the second attempt is under way.
  const RunResult result = run_script(2,
                                      R"(
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
  [ $RANK = 0 ] && exec sleep 600
  env > "$0.env"
  exit 1
fi
if [ $RANK = 1 ]; then
  MASTER_PORT_NOW=$MASTER_PORT
  (export $(grep -E '^TORCHELASTIC_RESTART_COUNT=' "$0.env"); MASTER_PORT=$MASTER_PORT_NOW )" RANK_PROGRAM
                                      R"( sum) 2> "$0.stale"
fi
exec )" RANK_PROGRAM " sum",
                                      {"--cpu", "--max_restarts", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 2, node 0, restart 1, by torchrun: sum 3",
                          "rank 1 of 2, local 1 of 2, node 0, restart 1, by torchrun: sum 3"));
  EXPECT_THAT(
      contents_of(folder_.path() / "worker.sh.stale"),
      ContainsRegex("rank 0 did not join: the process that listens at 127.0.0.1:[0-9]+ is for 2 "
                    "ranks of job [0-9a-f]+.1, this rank is one of 2 ranks of job "
                    "[0-9a-f]+.0"));
}

TEST_F(Launcher, WritesTheOutputOfEachRankToFiles) {
  const std::string logs = (folder_.path() / "logs").string();
  const RunResult result =
      run_script(2, "echo out $RANK; echo err $RANK >&2", {"--log_dir", logs, "--tee", "3"});
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"out 0", "out 1"}));
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(contents_of(logs + "/rank_" + rank + "/stdout.log"), "out " + rank + "\n");
    EXPECT_EQ(contents_of(logs + "/rank_" + rank + "/stderr.log"), "err " + rank + "\n");
  }
}

TEST_F(Launcher, ShowsOnlyTheStreamsThatAreAskedFor) {
  const std::string logs = (folder_.path() / "logs").string();
  const RunResult result = run_script(2, R"(
echo out $RANK
echo err $RANK >&2
[ $RANK = 0 ] && { touch "$0.done"; exit 0; }
until [ -e "$0.done" ]; do sleep 0.02; done
exit 1)",
                                      {"--log_dir", logs, "--tee", "0:1,1:2"});
  EXPECT_EQ(result.out, "out 0\n");
  EXPECT_THAT(result.err, HasSubstr("err 1\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("\nerr 0\n")));
  EXPECT_THAT(result.err, HasSubstr("    | out 1\n"));  // the report knows also what was not shown
  EXPECT_EQ(contents_of(logs + "/rank_0/stderr.log"), "err 0\n");
}

TEST_F(Launcher, KeepsTheFilesOfEachAttempt) {
  const std::string logs = (folder_.path() / "logs").string();
  run_script(1,
             "echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))",
             {"--log_dir", logs, "--max_restarts", "1"});
  EXPECT_EQ(contents_of(logs + "/rank_0/stdout.log"), "attempt 0\n");
  EXPECT_EQ(contents_of(logs + "/restart_1/rank_0/stdout.log"), "attempt 1\n");
}

TEST_F(Launcher, LogFilesThatCannotBeWrittenAreRefusedBeforeAnythingRuns) {
  const std::string file = folder_.write("file", "");
  const RunResult result = run_script(1, "echo never", {"--log_dir", file + "/logs"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("--log_dir"));
}

TEST_F(Launcher, KeepsEachWorkerOnCoresOfItsOwn) {
  if (launch::available_cores() < 2) GTEST_SKIP() << "this machine has one core";
  const RunResult result =
      run_script(2, "taskset -cp $$ | sed 's/.*: //'; echo threads $OMP_NUM_THREADS >&2",
                 {"--enable_cpu_affinity", "--cpu"});
  const std::vector<std::string> lists = sorted_lines(result.out);
  ASSERT_EQ(lists.size(), 2u) << result.err;
  EXPECT_NE(lists[0], lists[1]);
  const RunResult unbound = run_script(2, "taskset -cp $$ | sed 's/.*: //'", {"--cpu"});
  const std::vector<std::string> same = sorted_lines(unbound.out);
  ASSERT_EQ(same.size(), 2u);
  EXPECT_EQ(same[0], same[1]);
}

TEST_F(Launcher, TellsWorkersWhichGpusTheyMayUse) {
  EXPECT_EQ(run_script(1, "echo $CUDA_VISIBLE_DEVICES", {"--gpu_ids", "1,3"}).out, "1,3\n");
}

}  // namespace
}  // namespace accelerate::test
