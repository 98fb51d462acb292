// What workers are told, what they read and what becomes of what they write.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "launch/launcher_run.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(Launcher, ThreeRanksSeeTheirPlaceInTheWorld) {
  const RunResult result =
      run_script(3, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("0 0 3 3 0 127.0.0.1", "1 1 3 3 0 127.0.0.1", "2 2 3 3 0 127.0.0.1"));
}

TEST_F(Launcher, AllRanksAreToldTheSamePort) {
  const std::vector<std::string> ports = sorted_lines(run_script(2, "echo $MASTER_PORT").out);
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0], ports[1]);
  EXPECT_THAT(ports[0], MatchesRegex("[1-9][0-9]*"));
}

TEST_F(Launcher, PassesTheSettingsOfItsFlagsOn) {
  const std::string script =
      "echo $ACCELERATE_USE_CPU $ACCELERATE_MIXED_PRECISION $OMP_NUM_THREADS $MASTER_PORT";
  const auto reservation = launch::PortReservation::any();
  const std::string port = std::to_string(reservation.port());
  const RunResult result = run_script(1, script,
                                      {"--cpu", "--mixed-precision", "bf16", "--main_process_port",
                                       port, "--num_cpu_threads_per_process=3"});
  EXPECT_EQ(result.out, "True bf16 3 " + port + "\n");
}

TEST_F(Launcher, HidesTheRanksOfASchedulerFromWorkers) {
  folder_.write("worker.sh", "echo ${SLURM_PROCID-unset} ${PMI_RANK-unset} $RANK");
  const RunResult result =
      run({"launch", "--num_processes", "1", "sh", (folder_.path() / "worker.sh").string()},
          {.environment = {{"SLURM_PROCID", "5"}, {"PMI_RANK", "6"}, {"RANK", "7"}}});
  EXPECT_EQ(result.out, "unset unset 0\n");
}

TEST_F(Launcher, KeepsOutputAndErrorsApart) {
  const RunResult result = run_script(2, "echo out $RANK; echo err $RANK >&2");
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("out 0", "out 1"));
  EXPECT_THAT(sorted_lines(result.err), ElementsAre("err 0", "err 1"));
}

TEST_F(Launcher, PrefixesEachLineWithItsRankWhenAsked) {
  const RunResult result =
      run_script(2, "echo out; echo err >&2; printf 'no end'", {"--prefix_output"});
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("[rank 0] no end", "[rank 0] out", "[rank 1] no end", "[rank 1] out"));
  EXPECT_THAT(sorted_lines(result.err), ElementsAre("[rank 0] err", "[rank 1] err"));
}

TEST_F(Launcher, LinesWrittenInPiecesByManyWorkersDoNotMix) {
  const RunResult result = run_script(
      4, "for i in 1 2 3 4 5 6 7 8 9; do printf 'from '; printf 'rank '; echo $RANK; done");
  std::vector<std::string> expected;
  for (int rank = 0; rank < 4; ++rank) {
    expected.insert(expected.end(), 9, "from rank " + std::to_string(rank));
  }
  EXPECT_EQ(sorted_lines(result.out), expected);
}

TEST_F(Launcher, ASingleWorkerIsHeardBeforeItsLineEnds) {
  auto run = start_script(1, "printf 'Continue? '; exec sleep 600");
  run->wait_for_output("Continue? ");
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Launcher, GivesItsInputToRankZeroAlone) {
  folder_.write("worker.sh", "read -r line; echo \"$RANK: $line\"");
  const RunResult result =
      run({"launch", "--num_processes", "2", "sh", (folder_.path() / "worker.sh").string()},
          {.input = "hello\n"});
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("0: hello", "1: "));
}

TEST_F(Launcher, PassesLongLinesOnWhole) {
  const RunResult result = run_script(
      2, "head -c 300000 /dev/zero | tr '\\0' $RANK; echo; head -c 300000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr(std::string(300'000, '0') + "\n"));
  EXPECT_THAT(result.out, HasSubstr(std::string(300'000, '1') + "\n"));
  EXPECT_EQ(result.out.size(), 1'200'002u);
}

TEST_F(Launcher, PassesBinaryOutputOnUnchanged) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += static_cast<char>((i * 31) ^ (i >> 8));
  const std::string file = folder_.write("bytes", bytes);
  EXPECT_EQ(run({"launch", "--num_processes", "1", "cat", file}).out, bytes);
}

TEST_F(Launcher, RunsSixteenWorkers) {
  const RunResult result = run_script(16, "echo rank $RANK of $WORLD_SIZE");
  EXPECT_EQ(result.exit_code, 0);
  std::vector<std::string> expected;
  for (int rank = 0; rank < 16; ++rank) {
    expected.push_back("rank " + std::to_string(rank) + " of 16");
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted_lines(result.out), expected);
}

TEST_F(Launcher, WorkersLearnThatTheReaderOfTheOutputHasGone) {
  auto run = start_script(1, "echo ready; exec yes");
  run->wait_for_output("ready");
  run->close_output();
  EXPECT_EQ(run->wait().exit_code, 128 + SIGPIPE);
}

}  // namespace
}  // namespace accelerate::test
