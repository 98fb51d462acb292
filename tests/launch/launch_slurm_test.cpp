// Jobs inside a real SLURM, of two nodes on this machine. Skipped where it cannot run.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>

#include "launch/launcher_run.h"
#include "launch/plan/machine.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

struct Answer {
  int status = -1;
  std::string text;
};

Answer shell(const std::string& command) {
  Answer answer;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof buffer, pipe))
    answer.text.append(buffer, count);
  answer.status = WEXITSTATUS(pclose(pipe));
  return answer;
}

std::string contents_of(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// One SLURM for all tests of this program.
class SlurmRuns : public Launcher {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new ScratchFolder();
    reservations_ = new std::vector<launch::PortReservation>();
    std::string ports;  // its daemons take them over; nobody else gets them meanwhile
    for (int daemon = 0; daemon < 3; ++daemon) {
      reservations_->push_back(launch::PortReservation::any());
      ports += " " + std::to_string(reservations_->back().port());
    }
    started_ = new Answer(shell("timeout 200 " SLURM_SCRIPT " start " + cluster_->path().string() +
                                "/slurm" + ports));
  }
  static void TearDownTestSuite() {
    shell("timeout 200 " SLURM_SCRIPT " stop " + cluster_->path().string() + "/slurm");
    delete started_;
    delete reservations_;
    delete cluster_;
  }
  void SetUp() override {
    if (started_->status == 77) GTEST_SKIP() << started_->text;
    ASSERT_EQ(started_->status, 0) << started_->text;
  }

  RunOptions in_slurm() const {
    return {.environment = {{"SLURM_CONF", cluster_->path().string() + "/slurm/slurm.conf"}},
            .as_is = true};
  }
  RunResult command(const std::vector<std::string>& words) { return run(words, in_slurm()); }
  // Runs a batch script to its end; the result holds what it wrote and how it ended.
  RunResult batch(const std::string& flags, const std::string& script) {
    const std::string file =
        folder_.write("batch.sh", "#!/bin/bash\n#SBATCH " + flags + "\n" + script + "\n");
    return submit({file}, in_slurm());
  }
  // sbatch --wait would look every ten seconds.
  RunResult submit(const std::vector<std::string>& words, const RunOptions& options) {
    const std::string output = (folder_.path() / "batch.out").string();
    std::vector<std::string> command = {"sbatch", "--parsable", "--output=" + output,
                                        "--chdir=" + folder_.path().string()};
    command.insert(command.end(), words.begin(), words.end());
    RunResult result = run(command, options);
    if (result.exit_code != 0) return result;
    const std::string number = sorted_lines(result.out).front();
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    std::smatch found;
    std::string state;
    const std::regex ended(
        "JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY)"
        "[^]*ExitCode=([0-9]+):");
    do {
      state = run({"scontrol", "show", "job", number}, in_slurm()).out;
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "the job did not end: " << state << contents_of(output)
                      << contents_of(cluster_->path() / "slurm" / "slurmctld.log");
        return result;
      }
      usleep(100'000);
    } while (!std::regex_search(state, found, ended));
    result.exit_code = std::stoi(found[2]);
    result.out = contents_of(output);
    return result;
  }

 private:
  static inline ScratchFolder* cluster_ = nullptr;
  static inline Answer* started_ = nullptr;
  static inline std::vector<launch::PortReservation>* reservations_ = nullptr;
};

TEST_F(SlurmRuns, AProgramOfTheLibraryKnowsItsPlaceWithoutOurLauncher) {
  const RunResult result = command({"srun", "-N", "2", "--ntasks-per-node=2", RANK_PROGRAM, "sum"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 4, local 0 of 2, node 0, restart 0, by SLURM: sum 10",
                          "rank 1 of 4, local 1 of 2, node 0, restart 0, by SLURM: sum 10",
                          "rank 2 of 4, local 0 of 2, node 1, restart 0, by SLURM: sum 10",
                          "rank 3 of 4, local 1 of 2, node 1, restart 0, by SLURM: sum 10"));
}

const std::vector<std::string> kFourRanks = {
    "rank 0 of 4, local 0 of 2, node 0, restart 0, by torchrun: sum 10",
    "rank 1 of 4, local 1 of 2, node 0, restart 0, by torchrun: sum 10",
    "rank 2 of 4, local 0 of 2, node 1, restart 0, by torchrun: sum 10",
    "rank 3 of 4, local 1 of 2, node 1, restart 0, by torchrun: sum 10"};

TEST_F(SlurmRuns, OneLauncherOnEachNodeFindsTheOthersByItself) {
  const RunResult result =
      command({"srun", "-N", "2", "--ntasks-per-node=1", ACCELERATE_PROGRAM, "launch", "--cpu",
               "--num_processes", "4", RANK_PROGRAM, "sum"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), kFourRanks);
}

TEST_F(SlurmRuns, ABatchScriptNeedsNoMoreThanTheProgram) {
  const RunResult result = batch("--nodes=2 --ntasks-per-node=2",
                                 ACCELERATE_PROGRAM " launch --cpu " RANK_PROGRAM " sum");
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  // srun itself may have something to say about cores.
  EXPECT_THAT(sorted_lines(result.out), IsSupersetOf(kFourRanks));
}

// What `accelerate config default` writes on a machine without GPUs.
constexpr const char* kFileOfOneMachine =
    "compute_environment: LOCAL_MACHINE\n"
    "distributed_type: 'NO'\n"
    "machine_rank: 0\n"
    "num_machines: 1\n"
    "num_processes: 2\n"
    "mixed_precision: bf16\n"
    "use_cpu: true\n";

TEST_F(SlurmRuns, ABatchScriptWithAConfigurationFileOfOneMachineUsesAllNodes) {
  const std::string file = folder_.write("cluster.yaml", kFileOfOneMachine);
  const RunResult result =
      batch("--nodes=2 --ntasks-per-node=2",
            ACCELERATE_PROGRAM " launch --config_file " + file + " " RANK_PROGRAM " sum");
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(sorted_lines(result.out), IsSupersetOf(kFourRanks));
  EXPECT_THAT(result.out, HasSubstr("accelerate launch: the allocation has 2 machines; not used: "
                                    "num_machines 1 (" +
                                    file + ":4) and num_processes 2 (" + file + ":5)\n"));
}

TEST_F(SlurmRuns, TheWorkersOfAConfigurationFileAreThoseOfEachNodeIfSlurmWasNotAskedForAny) {
  const std::string file = folder_.write("cluster.yaml", kFileOfOneMachine);
  const std::string worker =
      folder_.write("worker.sh",
                    "echo rank $RANK of $WORLD_SIZE, $ACCELERATE_MIXED_PRECISION, "
                    "threads $OMP_NUM_THREADS");
  const RunResult result =
      batch("--nodes=2", ACCELERATE_PROGRAM " launch --config_file " + file + " sh " + worker);
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  // As many threads as two workers of one node have cores, however many nodes there are.
  const std::string end =
      " of 4, bf16, threads " + std::to_string(std::max(1, launch::available_cores() / 2));
  EXPECT_THAT(sorted_lines(result.out),
              IsSupersetOf({"rank 0" + end, "rank 1" + end, "rank 2" + end, "rank 3" + end}));
  EXPECT_THAT(result.out, HasSubstr("for each machine: num_processes 2 (" + file + ":5)\n"));
}

TEST_F(SlurmRuns, LongCommandLinesReachAllNodes) {
  const std::string worker = folder_.write("worker.sh", "echo rank $RANK got $# of ${#1}");
  const RunResult result = batch(
      "--nodes=2 --ntasks-per-node=1",
      "word=$(head -c 100000 /dev/zero | tr '\\0' '\"')\n" ACCELERATE_PROGRAM " launch --cpu sh " +
          worker + " \"$word\" \"$word\" \"$word\"");
  EXPECT_EQ(result.exit_code, 0) << result.err.substr(0, 2000) << result.out.substr(0, 2000);
  EXPECT_THAT(sorted_lines(result.out),
              IsSupersetOf({"rank 0 got 3 of 100000", "rank 1 got 3 of 100000"}));
}

TEST_F(SlurmRuns, TheSelfTestPasses) {
  const RunResult result = command({"srun", "-N", "2", "--ntasks-per-node=1", SELFTEST_PROGRAM,
                                    "--folder", folder_.path().string()});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, ContainsRegex("\n[0-9]+ passed in "));  // and none was left out
}

TEST_F(SlurmRuns, ABatchScriptOnOneNodeRunsItsTasksThere) {
  const RunResult result =
      batch("--nodes=1 --ntasks=2", ACCELERATE_PROGRAM " launch --cpu " RANK_PROGRAM " sum");
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 2, node 0, restart 0, by torchrun: sum 3",
                          "rank 1 of 2, local 1 of 2, node 0, restart 0, by torchrun: sum 3"));
}

TEST_F(SlurmRuns, AFailureStopsAllNodesAndBecomesTheExitCodeOfTheBatchScript) {
  const std::string worker =
      folder_.write("worker.sh", "[ $RANK = 3 ] || exec sleep 600; echo no shard >&2; exit 9");
  const RunResult result =
      batch("--nodes=2 --ntasks-per-node=2", ACCELERATE_PROGRAM " launch --cpu sh " + worker);
  EXPECT_EQ(result.exit_code, 9) << result.out;
  EXPECT_THAT(result.out, ContainsRegex("error: rank 3 of 4 on [^ ]+ exited with status 9"));
  EXPECT_THAT(result.out, HasSubstr("    | no shard\n"));
}

TEST_F(SlurmRuns, TheJobBeginsAnewOnAllNodes) {
  const RunResult result =
      batch("--nodes=2 --ntasks-per-node=1",
            ACCELERATE_PROGRAM " launch --cpu --max_restarts 1 " RANK_PROGRAM " steps 6 --resume " +
                folder_.path().string() + " 1:2:0");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("rank 0 begins restart 1 at step 3\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 1 ended at step 6\n"));
}

TEST_F(SlurmRuns, TheExamplesRun) {
  const std::string program_folder = std::filesystem::path(ACCELERATE_PROGRAM).parent_path();
  RunOptions options = in_slurm();
  options.environment["PATH"] = program_folder + ":" + std::getenv("PATH");
  options.environment["ACCELERATE_USE_CPU"] = "true";
  for (const auto& [example, last_rank] :
       {std::pair{"one_node", "rank 1 of 2, local 1 of 2, node 0, restart 0, by torchrun: sum 3"},
        std::pair{"many_nodes",
                  "rank 3 of 4, local 1 of 2, node 1, restart 0, by torchrun: sum 10"},
        std::pair{"srun_program",
                  "rank 3 of 4, local 1 of 2, node 1, restart 0, by SLURM: sum 10"}}) {
    const RunResult result = submit(
        {std::string(CLUSTER_EXAMPLES) + "/" + example + ".sbatch", RANK_PROGRAM, "sum"}, options);
    EXPECT_EQ(result.exit_code, 0) << example << ": " << result.out << result.err;
    EXPECT_THAT(sorted_lines(result.out), Contains(last_rank)) << example;
  }
}

TEST_F(SlurmRuns, SeveralLaunchersOnOneNodeAreRefused) {
  const RunResult result =
      command({"srun", "-N", "1", "-n", "2", ACCELERATE_PROGRAM, "launch", "--cpu", "true"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("srun started 2 launchers on 1 machine(s)"));
  EXPECT_THAT(result.err, HasSubstr("srun --ntasks-per-node=1 accelerate launch"));
}

TEST_F(SlurmRuns, ACancelledJobLeavesNothingBehind) {
  const std::string worker = folder_.write("worker.sh", "touch \"$0.$RANK\"; exec sleep 600");
  auto run = start({"srun", "-N", "2", "--ntasks-per-node=1", ACCELERATE_PROGRAM, "launch", "--cpu",
                    "--num_processes", "2", "sh", worker},
                   in_slurm());
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!std::filesystem::exists(worker + ".0") || !std::filesystem::exists(worker + ".1")) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    usleep(20'000);
  }
  run->signal(SIGTERM);
  EXPECT_NE(run->wait().exit_code, 0);
  expect_no_process_left();
}

}  // namespace
}  // namespace accelerate::test
