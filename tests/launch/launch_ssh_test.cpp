// Launchers started by ssh. A script plays ssh: the machine that it reaches is this one, with an
// environment as bare as that of a real ssh, outside of its own process group.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "launch/machines.h"
#include "launch/plan/command_line.h"

namespace accelerate::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class SshRuns : public Machines {
 protected:
  void SetUp() override {
    for (const char* program : {"bash", "setsid"}) {
      if (launch::find_in_path(program).empty()) GTEST_SKIP() << program << " is not installed";
    }
    ssh_ = folder_.write("ssh", R"(#!/bin/bash
host=$1
shift
[ "$host" = unreachable ] && { echo "ssh: connect to host unreachable: No route" >&2; exit 255; }
exec 3<&0
setsid --wait env -i PATH=/usr/bin:/bin LAUNCH_TEST_JOB="$LAUNCH_TEST_JOB" FAKE_HOST="$host" \
  sh -c "$*" < <(cat <&3)
)",
                         true);
  }

  std::unique_ptr<LauncherRun> start_by_ssh(const std::string& hosts, int processes,
                                            std::vector<std::string> flags,
                                            const std::vector<std::string>& program) {
    std::vector<std::string> arguments = {"launch",
                                          "--cpu",
                                          "--launcher",
                                          "ssh",
                                          "--launcher_command",
                                          ssh_,
                                          "--hostfile",
                                          folder_.write("hosts", hosts),
                                          "--main_process_ip",
                                          address_,
                                          "--main_process_port",
                                          std::to_string(port_),
                                          "--num_processes",
                                          std::to_string(processes)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return start(arguments, {.environment = {{"NCCL_DEBUG", "carried along"}}});
  }

  std::string ssh_;
};

TEST_F(SshRuns, StartsALauncherOnEachMachineWithTheSameSettings) {
  const RunResult result =
      start_by_ssh("a\nb\n", 4, {"--mixed_precision", "bf16"},
                   script("echo $FAKE_HOST $RANK $LOCAL_RANK $WORLD_SIZE "
                          "$ACCELERATE_MIXED_PRECISION $NCCL_DEBUG $(pwd) \"$1\""))
          ->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string here =
      " 4 bf16 carried along " + std::filesystem::current_path().string() + " ";
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("a 0 0" + here, "a 1 1" + here, "b 2 0" + here, "b 3 1" + here));
}

TEST_F(SshRuns, ProgramsOfTheLibraryMeet) {
  const RunResult result = start_by_ssh("a\nb\n", 2, {}, {RANK_PROGRAM, "sum"})->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 1, node 0, restart 0, by torchrun: sum 3",
                          "rank 1 of 2, local 0 of 1, node 1, restart 0, by torchrun: sum 3"));
}

TEST_F(SshRuns, LogsOfAnEarlierRunAreKeptOnTheDiskOfEachMachine) {
  const std::string logs = folder_.path() / "logs";
  // Only the second machine has them: they appear when it is reached.
  ssh_ = folder_.write("ssh_with_disks",
                       "#!/bin/bash\n[ \"$1\" = b ] && mkdir -p '" + logs +
                           "/rank_1' && echo first > '" + logs + "/rank_1/stdout.log'\nexec '" +
                           ssh_ + "' \"$@\"\n",
                       true);
  const RunResult result =
      start_by_ssh("a\nb\n", 2, {"--log_dir", logs}, script("echo second"))->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, MatchesRegex("accelerate launch: " + logs +
                                       " on [^ ]+ holds the output of an earlier run; this one "
                                       "goes to " +
                                       logs + "/run_2\n"));
  const auto written = [&](const std::string& file) {
    std::ifstream stream(logs + "/" + file);
    std::string line;
    std::getline(stream, line);
    return line;
  };
  EXPECT_EQ(written("rank_0/stdout.log"), "second");
  EXPECT_EQ(written("rank_1/stdout.log"), "first");
  EXPECT_EQ(written("run_2/rank_1/stdout.log"), "second");
}

TEST_F(SshRuns, ArgumentsArriveUnchanged) {
  auto program = script("printf '<%s>' \"$@\"; echo");
  program.insert(program.end(), {"it's", "$HOME", "a  b", "", "*", "\"q\"", "back\\slash"});
  const RunResult result = start_by_ssh("a\n", 1, {}, program)->wait();
  EXPECT_EQ(result.out, "<it's><$HOME><a  b><><*><\"q\"><back\\slash>\n") << result.err;
}

TEST_F(SshRuns, LongCommandLinesArriveWhole) {
  auto program = script("printf '%s ' $# ${#1} ${#8}; echo");
  program.insert(program.end(), 8, std::string(100'000, '"'));
  const RunResult result = start_by_ssh("a\n", 1, {}, program)->wait();
  EXPECT_EQ(result.out, "8 100000 100000 \n") << result.err.substr(0, 2000);
}

TEST_F(SshRuns, AFailureIsReportedOnceAndItsStatusPassedOn) {
  RunResult result = start_by_ssh("a\nb\n", 2, {},
                                  script("[ $RANK = 0 ] && { touch \"$0.0\"; exec sleep 600; }; "
                                         "until [ -e \"$0.0\" ]; do sleep 0.02; done; "
                                         "echo broken >&2; exit 6"))
                         ->wait();
  EXPECT_EQ(result.exit_code, 6);
  // The line of the rank and the report come from two machines, in any order.
  const std::string lines = "\n" + result.err;
  const size_t line = lines.find("\nbroken\n");
  ASSERT_NE(line, std::string::npos) << result.err;
  result.err.erase(line, std::string("broken\n").size());
  EXPECT_THAT(result.err,
              MatchesRegex("error: rank 1 of 2 on [^ ]+ exited with status 6 after "
                           "[^\n]+\n  its last line:\n    \\| broken\n  rank 0 was stopped\n"));
}

TEST_F(SshRuns, TheJobBeginsAnewOnAllMachines) {
  const RunResult result =
      start_by_ssh("a\nb\n", 2, {"--max_restarts", "1"},
                   script("echo $FAKE_HOST $TORCHELASTIC_RESTART_COUNT; "
                          "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                          "[ $RANK = 0 ] && { touch \"$0.0\"; exec sleep 600; }; "
                          "until [ -e \"$0.0\" ]; do sleep 0.02; done; exit 3"))
          ->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("a 0", "a 1", "b 0", "b 1"));
}

TEST_F(SshRuns, AStopSignalReachesTheWorkersAndTheyMaySaveTheirWork) {
  auto run = start_by_ssh(
      "a\nb\n", 2, {},
      script("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"ready", "ready", "saved", "saved"}));
}

TEST_F(SshRuns, NothingIsLeftOnOtherMachinesWhenTheLauncherIsKilled) {
  auto run =
      start_by_ssh("a\nb\n", 4, {"--grace_period", "1"}, script("echo ready; exec sleep 600"));
  run->wait_for_output("ready", 4);
  run->signal(SIGKILL);
  run->wait();
  expect_no_process_left();
}

TEST_F(SshRuns, ASecondInterruptKillsTheWorkersOfOtherMachinesAtOnce) {
  auto run = start_by_ssh("a\nb\n", 2, {"--grace_period", "3600"},
                          script("trap 'echo heard' INT TERM HUP; echo ready; "
                                 "while :; do sleep 0.05; done"));
  run->wait_for_output("ready", 2);
  run->signal(SIGINT);
  run->wait_for_output("heard", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  run->signal(SIGINT);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGINT);
  expect_no_process_left();
}

TEST_F(SshRuns, SecretsAreOnNoCommandLineAndInNoText) {
  const auto hosts = folder_.write("hosts", "a\nb\n");
  const std::vector<std::string> arguments = {"launch",
                                              "--cpu",
                                              "--launcher",
                                              "ssh",
                                              "--launcher_command",
                                              ssh_,
                                              "--hostfile",
                                              hosts,
                                              "--main_process_ip",
                                              address_,
                                              "--main_process_port",
                                              std::to_string(port_),
                                              "--num_processes",
                                              "2"};
  const RunOptions options{
      .environment = {{"HF_TOKEN", "hf_Sesame"}, {"ACCELERATE_API_KEY", "hf_Sesame"}}};
  auto debug = arguments;
  const auto program = script(
      "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c [h]f_Sesame; "
      "echo token $HF_TOKEN");
  debug.push_back("--debug");
  debug.insert(debug.end(), program.begin(), program.end());
  const RunResult result = run(debug, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("0", "0", "token hf_Sesame", "token hf_Sesame"));
  EXPECT_EQ(result.err.find("hf_Sesame"), std::string::npos) << result.err;

  auto dry = arguments;
  dry.insert(dry.end(), {"--dry_run", "true"});
  const RunResult shown = run(dry, options);
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_EQ(shown.out.find("hf_Sesame"), std::string::npos) << shown.out;
}

TEST_F(SshRuns, AnEnvironmentBeyondTheLengthOfACommandLineIsCarried) {
  const std::string hosts = folder_.write("hosts", "a\nb\n");
  // Each of these would have to be escaped, by a message, by a shell or by both.
  std::string wild;
  while (wild.size() < 100'000) wild += "%'\"\\ $`\n\t=;*~\xc3\xa9\x01";
  const RunResult result =
      run({"launch", "--cpu", "--launcher", "ssh", "--launcher_command", ssh_, "--hostfile", hosts,
           "--main_process_ip", address_, "--main_process_port", std::to_string(port_), "sh",
           folder_.write("worker.sh", "printf %s \"$NCCL_LONG\" > \"$0.$RANK\"")},
          {.environment = {{"NCCL_LONG", wild}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* rank : {"0", "1"}) {
    std::ifstream stream(folder_.path() / ("worker.sh." + std::string(rank)), std::ios::binary);
    const std::string arrived{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_TRUE(arrived == wild) << "rank " << rank << " got " << arrived.size() << " bytes";
  }
}

TEST_F(SshRuns, UnequalSlotsAreRefused) {
  const std::string hosts = folder_.write("hosts", "a slots=3\nb slots=1\n");
  const RunResult result = run({"launch", "--cpu", "--launcher", "ssh", "--launcher_command", ssh_,
                                "--hostfile", hosts, "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("a has 3 slots, b has 1"));
}

TEST_F(SshRuns, OneMachineOfAHostFileIsOneMachine) {
  const RunResult result = start_by_ssh("a slots=2\nb slots=2\n", 2, {"--num_machines", "1"},
                                        script("echo $FAKE_HOST $RANK $GROUP_WORLD_SIZE"))
                               ->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("a 0 1", "a 1 1"));
}

TEST_F(SshRuns, AMachineThatCannotBeReachedEndsTheJob) {
  const RunResult result =
      start_by_ssh("a\nunreachable\n", 2, {"--grace_period", "2"}, script("echo never"))->wait();
  EXPECT_EQ(result.exit_code, 255);
  EXPECT_THAT(result.err, HasSubstr("ssh: connect to host unreachable: No route\n"));
  EXPECT_THAT(result.err,
              ContainsRegex("error: ssh to machine 1 of 2 .unreachable. on [^ ]+ exited with "
                            "status 255"));
  EXPECT_THAT(result.err, HasSubstr("  try  ssh unreachable true\n"));
  EXPECT_EQ(result.out, "");
}

TEST_F(SshRuns, WithoutSlotsInTheCommandTheHostFileDecides) {
  const std::string hosts = folder_.write("hosts", "a slots=2\nb slots=2\n");
  const RunResult result =
      run({"launch", "--cpu", "--launcher", "ssh", "--launcher_command", ssh_, "--hostfile", hosts,
           "--main_process_ip", address_, "--main_process_port", std::to_string(port_), "sh",
           folder_.write("worker.sh", "echo $RANK of $WORLD_SIZE")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("0 of 4", "1 of 4", "2 of 4", "3 of 4"));
}

TEST_F(SshRuns, TheExampleRuns) {
  const std::string program_folder = std::filesystem::path(ACCELERATE_PROGRAM).parent_path();
  const std::string path =
      folder_.path().string() + ":" + program_folder + ":" + std::getenv("PATH");
  const std::string hosts = folder_.write("hosts", "localhost slots=1\n127.0.0.1 slots=1\n");
  folder_.write("ssh", "#!/bin/bash\nshift 4\nshift\nexec sh -c \"$*\"\n", true);  // after -o, -o
  const RunResult result =
      run({"bash", CLUSTER_EXAMPLES "/run_ssh.sh", hosts, RANK_PROGRAM, "sum"},
          {.environment = {{"PATH", path}, {"ACCELERATE_USE_CPU", "true"}}, .as_is = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 1, node 0, restart 0, by torchrun: sum 3",
                          "rank 1 of 2, local 0 of 1, node 1, restart 0, by torchrun: sum 3"));
}

TEST_F(SshRuns, AHostFileIsNeeded) {
  const RunResult result = run({"launch", "--launcher", "ssh", "--num_processes", "2", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--launcher ssh needs the list of machines"));
}

}  // namespace
}  // namespace accelerate::test
