// Programs started by mpirun, by the user or by the launcher. Skipped where there is no MPI.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "launch/launcher_run.h"
#include "launch/plan/command_line.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Mpi {
  std::string name;
  std::string mpirun;
  std::string family;              // what the library calls it
  std::vector<std::string> flags;  // for more ranks than cores, as root
};

void PrintTo(const Mpi& mpi, std::ostream* stream) { *stream << mpi.name; }

class MpiRuns : public Launcher, public ::testing::WithParamInterface<Mpi> {
 protected:
  void SetUp() override {
    if (launch::find_in_path(GetParam().mpirun).empty()) {
      GTEST_SKIP() << GetParam().mpirun << " is not installed";
    }
  }

  // Words before the program when a user runs mpirun.
  std::vector<std::string> by_hand(int ranks) const {
    std::vector<std::string> words = {GetParam().mpirun, "-n", std::to_string(ranks)};
    words.insert(words.end(), GetParam().flags.begin(), GetParam().flags.end());
    return words;
  }
  RunResult launch_by_mpirun(int ranks, std::vector<std::string> flags,
                             const std::vector<std::string>& program) {
    return start_by_mpirun(ranks, std::move(flags), program)->wait();
  }
  std::unique_ptr<LauncherRun> start_by_mpirun(int ranks, std::vector<std::string> flags,
                                               const std::vector<std::string>& program) {
    std::vector<std::string> arguments = {
        "launch",          "--cpu",           "--launcher",         "mpirun", "--launcher_command",
        GetParam().mpirun, "--num_processes", std::to_string(ranks)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return start(arguments, {});
  }
  std::vector<std::string> script(const std::string& text) {
    return {"sh", folder_.write("worker.sh", text)};
  }

  // Where ranks that mpirun started by hand meet.
  launch::PortReservation reservation_ = launch::PortReservation::any();
  const std::string port_ = std::to_string(reservation_.port());
};

TEST_P(MpiRuns, AProgramOfTheLibraryKnowsItsPlaceWithoutOurLauncher) {
  std::vector<std::string> command = by_hand(3);
  command.insert(command.end(), {RANK_PROGRAM, "sum"});
  const RunResult result = run(command, {.environment = {{"MASTER_PORT", port_}}, .as_is = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string end = ", node 0, restart 0, by " + GetParam().family + ": sum 6";
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 3, local 0 of 3" + end, "rank 1 of 3, local 1 of 3" + end,
                          "rank 2 of 3, local 2 of 3" + end));
}

TEST_P(MpiRuns, TheSelfTestPasses) {
  std::vector<std::string> command = by_hand(2);
  command.push_back(SELFTEST_PROGRAM);
  const RunResult result =
      run(command,
          {.environment = {{"MASTER_PORT", port_}, {"ACCELERATE_USE_CPU", "true"}}, .as_is = true});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, ContainsRegex("\n[0-9]+ passed in "));  // and none was left out
}

TEST_P(MpiRuns, TheLauncherStartsAProgramThroughIt) {
  const RunResult result = launch_by_mpirun(2, {}, {RANK_PROGRAM, "sum"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string end = ", node 0, restart 0, by " + GetParam().family + ": sum 3";
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 2" + end, "rank 1 of 2, local 1 of 2" + end));
}

TEST_P(MpiRuns, TheMachinesOfAHostFileAreUsedHoweverItIsWritten) {
  for (const char* text : {"localhost:2\n", "localhost slots=2\n", "# one\nlocalhost  slots=2\n"}) {
    const std::string hosts = folder_.write("hosts", text);
    const RunResult result = launch_by_mpirun(2, {"--hostfile", hosts}, {RANK_PROGRAM, "sum"});
    EXPECT_EQ(result.exit_code, 0) << text << result.err;
    EXPECT_THAT(sorted_lines(result.out), Contains(HasSubstr("rank 1 of 2, local 1 of 2"))) << text;
  }
}

TEST_P(MpiRuns, WhoAsksForMoreWorkersThanSlotsGetsThem) {
  const std::string hosts = folder_.write("hosts", "localhost slots=2\n");
  const RunResult result = launch_by_mpirun(4, {"--hostfile", hosts}, {RANK_PROGRAM, "sum"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), Contains(HasSubstr("rank 3 of 4, local 3 of 4")));
}

TEST_P(MpiRuns, TheExampleRuns) {
  const std::string program_folder = std::filesystem::path(ACCELERATE_PROGRAM).parent_path();
  // A script and not a link, beside which MPICH would look for its own parts.
  folder_.write("mpirun", "#!/bin/sh\nexec " + GetParam().mpirun + " \"$@\"\n", true);
  const std::string path =
      folder_.path().string() + ":" + program_folder + ":" + std::getenv("PATH");
  const std::string hosts = folder_.write("hosts", "localhost slots=2\n");
  const RunResult result =
      run({"bash", CLUSTER_EXAMPLES "/run_mpi.sh", hosts, RANK_PROGRAM, "sum"},
          {.environment = {{"PATH", path}, {"ACCELERATE_USE_CPU", "true"}}, .as_is = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), Contains(HasSubstr("rank 1 of 2, local 1 of 2")));
}

TEST_P(MpiRuns, SettingsReachTheRanksAndForeignRanksDoNot) {
  const RunResult result = launch_by_mpirun(
      2, {"--mixed_precision", "bf16"},
      script("echo $ACCELERATE_MIXED_PRECISION $ACCELERATE_USE_CPU ${MASTER_PORT:+port} "
             "${RANK-none} $TORCHELASTIC_RESTART_COUNT"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "bf16 True port none 0\nbf16 True port none 0\n");
}

TEST_P(MpiRuns, TheStatusOfAFailedRankIsPassedOn) {
  // The ranks meet first: MPICH's mpiexec is ended by SIGPIPE where one has gone before it is
  // ready.
  const RunResult result = launch_by_mpirun(
      2, {},
      script(RANK_PROGRAM " sum; [ \"${OMPI_COMM_WORLD_RANK-$PMI_RANK}\" = 1 ] && exit 7; exit 0"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("error: mpirun on [^ ]+ exited with status 7"));
}

TEST_P(MpiRuns, AFailedRankEndsTheOthers) {
  const RunResult result = launch_by_mpirun(2, {}, {RANK_PROGRAM, "steps", "100000", "1:2:0"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("what():  the loss is not a number at step 2"));
  EXPECT_THAT(result.err, ContainsRegex("error: mpirun on [^ ]+ exited with status"));
}

TEST_P(MpiRuns, AFailedJobBeginsAnew) {
  const RunResult result =
      launch_by_mpirun(2, {"--max_restarts", "1"},
                       {RANK_PROGRAM, "steps", "6", "--resume", folder_.path().string(), "1:2:0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 1 begins restart 1 at step 3\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 0 ended at step 6\n"));
}

TEST_P(MpiRuns, AStopSignalEndsAllRanks) {
  auto run = start_by_mpirun(2, {}, script("echo ready; exec sleep 600"));
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_P(MpiRuns, RanksHaveTimeToSaveTheirWork) {
  auto run = start_by_mpirun(2, {},
                             script("trap 'sleep 3; echo saved; exit 0' TERM; echo ready; "
                                    "while :; do sleep 0.05; done"));
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("ready", "ready", "saved", "saved"));
}

TEST_P(MpiRuns, AKilledLauncherLeavesNoRankBehind) {
  auto run = start_by_mpirun(2, {}, script("echo ready; exec sleep 600"));
  run->wait_for_output("ready", 2);
  run->signal(SIGKILL);
  run->wait();
  expect_no_process_left();
}

std::vector<std::string> open_mpi_flags() {
  std::vector<std::string> flags = {"--oversubscribe"};
  if (geteuid() == 0) flags.push_back("--allow-run-as-root");
  return flags;
}

INSTANTIATE_TEST_SUITE_P(Each, MpiRuns,
                         ::testing::Values(Mpi{"OpenMpi", "mpirun.openmpi", "Open MPI",
                                               open_mpi_flags()},
                                           Mpi{"Mpich", "mpirun.mpich", "PMI", {}}),
                         [](const auto& info) { return info.param.name; });

TEST_F(Launcher, AnUnknownMpirunIsRefusedByName) {
  const RunResult result = run({"launch", "--launcher", "mpirun", "--launcher_command", "echo",
                                "--num_processes", "2", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("does not name a known MPI"));
}

}  // namespace
}  // namespace accelerate::test
