// What the launcher hands to mpirun and srun. Scripts play these: they write down what they were
// told and start nothing.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"
#include "launch/launcher_run.h"

namespace accelerate::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Starters : public Launcher {
 protected:
  // A program that answers --version with `version`, and otherwise writes its words, each on a
  // line, and MASTER_PORT to a file of its own; see records().
  std::string starter(const std::string& version) {
    return folder_.write("starter",
                         "#!/bin/sh\n"
                         "if [ \"$*\" = --version ]; then echo '" +
                             version +
                             "'; exit 0; fi\n"
                             "printf '<%s>\\n' \"$@\" > \"$0.record.$$\"\n"
                             "echo \"port $MASTER_PORT\"\n",
                         true);
  }
  // What it was told, a text for each time that it ran.
  std::vector<std::string> records() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (!entry.path().filename().string().starts_with("starter.record.")) continue;
      std::ifstream stream(entry.path());
      std::ostringstream text;
      text << stream.rdbuf();
      found.push_back(text.str());
    }
    return found;
  }
};

// The rest of the first line of `text` that holds `mark`.
std::string after(const std::string& mark, const std::string& text) {
  const size_t begin = text.find(mark);
  if (begin == std::string::npos) return "";
  return text.substr(begin + mark.size(), text.find('\n', begin) - begin - mark.size());
}

TEST_F(Starters, DebugShowsTheVeryCommandThatRuns) {
  // Here the name of the job and its port are made up, other ones each time.
  const RunResult result =
      run({"launch", "--cpu", "--debug", "--launcher", "slurm", "--launcher_command", starter(""),
           "--num_machines", "2", "--num_processes", "4", "--main_process_ip", "node 1", "sh",
           folder_.write("worker.sh", ""), "it's", "$HOME"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string line = after("accelerate launch: ", result.err);
  EXPECT_THAT(line, HasSubstr("node-agent"));
  EXPECT_THAT(result.err, HasSubstr("accelerate launch: srun is process "));
  ASSERT_EQ(std::system((line + " > /dev/null").c_str()), 0) << line;
  const std::vector<std::string> told = records();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0], told[1]);
}

TEST_F(Starters, LongCommandLinesGoThroughTheInputOfSrun) {
  // Plays srun on one machine: runs the words behind its own flags.
  const std::string srun = folder_.write("srun",
                                         "#!/bin/sh\n"
                                         "while [ \"${1#--}\" != \"$1\" ]; do shift; done\n"
                                         "exec \"$@\"\n",
                                         true);
  std::vector<std::string> words = {"launch",
                                    "--cpu",
                                    "--launcher",
                                    "slurm",
                                    "--launcher_command",
                                    srun,
                                    "--num_processes",
                                    "2",
                                    "sh",
                                    folder_.write("worker.sh", "cat; echo $# ${#1} ${#8}")};
  words.insert(words.end(), 8, std::string(100'000, '"'));
  const RunResult result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err.substr(0, 2000);
  // Nothing of the plan is left in the input of the workers.
  EXPECT_EQ(result.out, "8 100000 100000\n8 100000 100000\n");
}

class TakenPort : public Starters {
 protected:
  void SetUp() override {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener_.get(), any, size), 0);
    ASSERT_EQ(listen(listener_.get(), 1), 0);
    ASSERT_EQ(getsockname(listener_.get(), any, &size), 0);
    port_ = std::to_string(ntohs(address.sin_port));
  }
  RunResult run_by_mpirun(const std::string& main_address) {
    return run({"launch", "--cpu", "--launcher", "mpirun", "--launcher_command",
                starter("mpirun (Open MPI) 4.1.4"), "--num_processes", "2", "--main_process_ip",
                main_address, "--main_process_port", port_, "true"});
  }

  UniqueFd listener_;
  std::string port_;
};

TEST_F(TakenPort, IsNoMatterForAFirstRankOnAnotherMachine) {
  const RunResult result = run_by_mpirun("203.0.113.7");  // of documents, nobody's
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "port " + port_ + "\n");
}

TEST_F(TakenPort, IsRefusedForAFirstRankHere) {
  const RunResult result = run_by_mpirun("127.0.0.1");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("port " + port_ + " is in use by another process"));
  EXPECT_THAT(records(), SizeIs(0));
}

}  // namespace
}  // namespace accelerate::test
