// The command line of the program `accelerate`.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "launch/launcher_run.h"
#include "launch/plan/command_line.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Launcher, EverythingAfterTheProgramBelongsToIt) {
  const std::string script = folder_.write("worker.sh", "printf '<%s>' \"$@\"; echo $WORLD_SIZE");
  const RunResult result = run({"launch", "--num-processes=1", "sh", script, "--cpu", "a b", "",
                                "--num_processes", "7", "--help", "--", "-m"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "<--cpu><a b><><--num_processes><7><--help><--><-m>1\n");
}

TEST_F(Launcher, DashesEndTheFlagsOfTheLauncher) {
  EXPECT_EQ(run({"launch", "--num_processes", "1", "--", "echo", "-n", "a"}).out, "a");
}

TEST_F(Launcher, AnUnknownFlagIsRefusedWithTheNearestOne) {
  const RunResult result = run({"launch", "--num_proceses", "2", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "error: accelerate launch has no flag --num_proceses\n"
            "  try  --num_processes? (flags of your program come after it)\n");
}

TEST_F(Launcher, BadValuesAreUsageErrors) {
  EXPECT_EQ(run({"launch", "--num_processes", "0", "true"}).exit_code, 2);
  EXPECT_EQ(run({"launch", "--num_processes", "two", "true"}).exit_code, 2);
  EXPECT_EQ(run({"launch", "--main_process_port", "65536", "true"}).exit_code, 2);
  EXPECT_EQ(run({"launch", "--module", "--no_python", "true"}).exit_code, 2);
  EXPECT_EQ(run({"launch", "--num_processes"}).exit_code, 2);
  const RunResult precision = run({"launch", "--mixed_precision", "fp12", "true"});
  EXPECT_EQ(precision.exit_code, 2);
  EXPECT_EQ(precision.err,
            "error: mixed_precision cannot be 'fp12': it must be no, fp16 or bf16 (fp8 is not "
            "part of this build)\n"
            "  at   --mixed_precision\n  try  fp16?\n");
}

TEST_F(Launcher, AProgramIsNeeded) {
  const RunResult result = run({"launch", "--num_processes", "2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: accelerate launch needs a program to run\n"));
}

TEST_F(Launcher, APortInUseIsRefusedByName) {
  const std::string port = std::to_string(launch::PortReservation::any().port());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  const UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(server.get(), 1), 0);

  const RunResult result = run({"launch", "--main_process_port", port, "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "error: port " + port +
                            " is in use by another process\n"
                            "  at   --main_process_port\n"
                            "  try  name another port, or leave the flag out and a free one is "
                            "picked\n");
}

TEST_F(Launcher, RunsPythonFilesAndModulesThroughPython) {
  if (launch::find_in_path("python3").empty()) GTEST_SKIP() << "this machine has no python3";
  const std::string file =
      folder_.write("train.py", "import os, sys; print(os.environ['RANK'], *sys.argv[1:])\n");
  const std::vector<std::string> expected = {"0 --lr 1", "1 --lr 1"};
  EXPECT_EQ(sorted_lines(run({"launch", "--num_processes", "2", file, "--lr", "1"}).out), expected);
  EXPECT_EQ(sorted_lines(run({"launch", "--num_processes", "2", "-m", "train", "--lr", "1"},
                             {.environment = {{"PYTHONPATH", folder_.path().string()}}})
                             .out),
            expected);
}

TEST_F(Launcher, PrintsItsVersion) {
  const RunResult result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "accelerate " ACCELERATE_TEST_VERSION "\n");
}

TEST_F(Launcher, PrintsHelpWithoutArgumentsAndOnRequest) {
  const RunResult plain = run({});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.out, ContainsRegex("launch +Start the workers"));
  const RunResult launch = run({"launch", "--help"});
  EXPECT_EQ(launch.exit_code, 0);
  EXPECT_THAT(launch.out, HasSubstr("Usage: accelerate launch [flags] program"));
  EXPECT_THAT(launch.out, ContainsRegex("--num_processes N +Workers to start"));
  EXPECT_THAT(launch.out, HasSubstr("Examples:\n  accelerate launch --num_processes 2 ./train"));
}

TEST_F(Launcher, AnUnknownCommandIsRefusedWithTheNearestOne) {
  const RunResult result = run({"lanch", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "error: accelerate has no command lanch\n  try  accelerate launch\n");
}

TEST_F(Launcher, EnvDescribesTheMachineAlsoWithoutPython) {
  const RunResult result =
      run({"env"}, {.environment = {{"PATH", folder_.path().string()}, {"NCCL_DEBUG", "INFO"}}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("accelerate    " ACCELERATE_TEST_VERSION "\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nplatform +Linux "));
  EXPECT_THAT(result.out, ContainsRegex("\nprocessor +.*logical cores\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nmemory +[0-9.]+ GiB\n"));
  EXPECT_THAT(result.out, ContainsRegex("\nPython +none\n"));
  EXPECT_THAT(result.out, ContainsRegex("[ s]NCCL_DEBUG=INFO\n"));
}

TEST_F(Launcher, EnvNamesTheTorchThatPythonWouldImport) {
  if (launch::find_in_path("python3").empty()) GTEST_SKIP() << "this machine has no python3";
  std::filesystem::create_directory(folder_.path() / "torch");
  folder_.write("torch/__init__.py", "raise RuntimeError('imported')\n");
  folder_.write("torch/version.py", "__version__ = '9.8.7+cpu'\n");
  const RunResult result = run({"env"}, {.environment = {{"PYTHONPATH", folder_.path().string()}}});
  EXPECT_THAT(result.out, HasSubstr(", torch 9.8.7+cpu\n"));
}

}  // namespace
}  // namespace accelerate::test
