// Jobs over a real ssh: a server of OpenSSH that the tests start on the loopback of this machine,
// with keys of its own, plays two machines. Skipped where no such server is installed.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "launch/machines.h"
#include "launch/plan/command_line.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string sshd_path() {
  for (const char* path : {"/usr/sbin/sshd", "/usr/local/sbin/sshd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

// A server that lets this user in with one key, and the words with which ssh gets there. Ends with
// this object, and by itself after half an hour.
class SshServer {
 public:
  SshServer() {
    const std::string folder = folder_.path().string();
    const std::string port = std::to_string(reservation_.port());
    make_key("host_key");
    make_key("user_key");
    make_key("stranger_key");
    std::filesystem::copy_file(folder_.path() / "user_key.pub", folder_.path() / "authorized_keys");
    const std::string settings =
        folder_.write("sshd_config", "ListenAddress 127.0.0.1\nPort " + port + "\nHostKey " +
                                         folder + "/host_key\nAuthorizedKeysFile " + folder +
                                         "/authorized_keys\nPidFile none\nUsePAM no\n" +
                                         "StrictModes no\nPasswordAuthentication no\n" +
                                         "PermitRootLogin yes\nAcceptEnv LAUNCH_TEST_JOB\n");
    folder_.write("ssh_config", "Host a b\n  HostName 127.0.0.1\n  Port " + port +
                                    "\nHost silent\n  HostName 127.0.0.1\n  Port 1\nHost *\n"
                                    "  UserKnownHostsFile " +
                                    folder +
                                    "/known_hosts\n  StrictHostKeyChecking accept-new\n"
                                    "  LogLevel ERROR\n  SendEnv LAUNCH_TEST_JOB\n"
                                    "  IdentitiesOnly yes\n");
    // A server that root starts leaves its rights behind in this folder.
    std::error_code not_root;
    std::filesystem::create_directories("/run/sshd", not_root);
    server_ = std::make_unique<LauncherRun>(
        std::vector<std::string>{"timeout", "1800", sshd_path(), "-D", "-e", "-f", settings},
        RunOptions{.as_is = true});
    server_->wait_for_error("Server listening");
  }
  ~SshServer() {
    server_->signal(SIGTERM);
    server_->wait();
  }

  // "ssh" as --launcher_command takes it.
  std::string ssh(const std::string& key = "user_key") const {
    const std::string folder = folder_.path().string();
    return "ssh -F " + folder + "/ssh_config -i " + folder + "/" + key;
  }
  // Why this user cannot log in; "" if it can.
  std::string refusal() const {
    const std::string answer = (folder_.path() / "answer").string();
    const int status =
        std::system((ssh() + " -o BatchMode=yes a true < /dev/null > " + answer + " 2>&1").c_str());
    if (status == 0) return "";
    std::ifstream stream(answer);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  void make_key(const std::string& name) const {
    const std::string command =
        "ssh-keygen -q -t ed25519 -N '' -f " + (folder_.path() / name).string();
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed");
  }

  ScratchFolder folder_;
  launch::PortReservation reservation_ = launch::PortReservation::any();
  std::unique_ptr<LauncherRun> server_;
};

// One server for all tests of this program.
class RealSsh : public Machines {
 protected:
  static void SetUpTestSuite() {
    if (!missing().empty()) return;
    server_ = new SshServer();
    refusal_ = new std::string(server_->refusal());
  }
  static void TearDownTestSuite() {
    delete server_;
    delete refusal_;
  }
  void SetUp() override {
    if (!missing().empty()) GTEST_SKIP() << missing() << " is not installed";
    ASSERT_EQ(*refusal_, "") << "the server of ssh lets nobody in";
  }

  static std::string missing() {
    if (sshd_path().empty()) return "sshd";
    for (const char* program : {"ssh", "ssh-keygen", "timeout"}) {
      if (launch::find_in_path(program).empty()) return program;
    }
    return "";
  }

  std::unique_ptr<LauncherRun> start_on(const std::string& hosts,
                                        const std::vector<std::string>& flags,
                                        const std::vector<std::string>& program,
                                        const std::string& key = "user_key") {
    std::vector<std::string> arguments = {"launch",
                                          "--cpu",
                                          "--launcher",
                                          "ssh",
                                          "--launcher_command",
                                          server_->ssh(key),
                                          "--hostfile",
                                          folder_.write("hosts", hosts),
                                          "--main_process_ip",
                                          address_,
                                          "--main_process_port",
                                          std::to_string(port_)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return start(arguments, {.environment = {{"HF_TOKEN", "hf_Sesame"}}});
  }

  static inline SshServer* server_ = nullptr;
  static inline std::string* refusal_ = nullptr;
};

TEST_F(RealSsh, ProgramsOfTheLibraryMeet) {
  const RunResult result = start_on("a\nb\n", {}, {RANK_PROGRAM, "sum"})->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 1, node 0, restart 0, by torchrun: sum 3",
                          "rank 1 of 2, local 0 of 1, node 1, restart 0, by torchrun: sum 3"));
}

TEST_F(RealSsh, ArgumentsFolderAndSecretsArriveUnchanged) {
  auto program = script("printf '%s ' $RANK \"$HF_TOKEN\" \"$(pwd)\"; printf '<%s>' \"$@\"; echo");
  program.insert(program.end(), {"it's", "$HOME", "a  b", "", "*", "\"q\"", "back\\slash"});
  const RunResult result = start_on("a\nb\n", {}, program)->wait();
  const std::string rest = " hf_Sesame " + std::filesystem::current_path().string() +
                           " <it's><$HOME><a  b><><*><\"q\"><back\\slash>";
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("0" + rest, "1" + rest)) << result.err;
}

// Rank 0 has begun before rank 1 fails.
constexpr const char* kRankOneFails =
    "echo $RANK $TORCHELASTIC_RESTART_COUNT; touch \"$0.$RANK\"; "
    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 0 ] && exec sleep 600; "
    "while [ ! -e \"$0.0\" ]; do sleep 0.02; done; echo broken >&2; exit 6";

TEST_F(RealSsh, AFailureIsReportedOnceAndItsStatusPassedOn) {
  const RunResult result = start_on("a\nb\n", {}, script(kRankOneFails))->wait();
  EXPECT_EQ(result.exit_code, 6);
  // What the ranks write and what is said of them come through two connections, in any order.
  EXPECT_THAT(result.err, AllOf(ContainsRegex("error: rank 1 of 2 on [^ ]+ exited with status 6"),
                                HasSubstr("  rank 0 was stopped\n")));
  EXPECT_EQ(result.err.find("error: "), result.err.rfind("error: ")) << result.err;
}

TEST_F(RealSsh, TheJobBeginsAnewOnAllMachines) {
  const RunResult result =
      start_on("a\nb\n", {"--max_restarts", "1"}, script(kRankOneFails))->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("0 0", "0 1", "1 0", "1 1"));
}

TEST_F(RealSsh, AnInterruptReachesTheWorkersAndTheyMaySaveTheirWork) {
  auto run = start_on(
      "a\nb\n", {},
      script("trap 'echo saved; exit 0' INT TERM; echo ready; while :; do sleep 0.05; done"));
  run->wait_for_output("ready", 2);
  run->signal(SIGINT);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("ready", "ready", "saved", "saved"));
}

TEST_F(RealSsh, NothingIsLeftOnTheMachinesWhenTheLauncherIsKilled) {
  auto run = start_on("a\nb\n", {"--grace_period", "1", "--num_processes", "4"},
                      script("echo ready; exec sleep 600"));
  run->wait_for_output("ready", 4);
  run->signal(SIGKILL);
  run->wait();
  expect_no_process_left();
}

TEST_F(RealSsh, AMachineWhereNobodyListensEndsTheJob) {
  const RunResult result =
      start_on("a\nsilent\n", {"--grace_period", "2"}, script("echo never"))->wait();
  EXPECT_EQ(result.exit_code, 255);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("Connection refused"),
            ContainsRegex("error: ssh to machine 1 of 2 .silent. on [^ ]+ exited with status 255"),
            HasSubstr("  try  ssh silent true\n")));
}

TEST_F(RealSsh, AKeyThatIsNotKnownThereEndsTheJobWithoutAQuestion) {
  const RunResult result =
      start_on("a\nb\n", {"--grace_period", "2"}, script("echo never"), "stranger_key")->wait();
  EXPECT_EQ(result.exit_code, 255);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("Permission denied"),
                                ContainsRegex("error: ssh to machine [01] of 2 ")));
}

}  // namespace
}  // namespace accelerate::test
