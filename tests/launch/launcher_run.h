// Runs the program `accelerate` as a user would and looks at all that comes of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launch/scratch_folder.h"

namespace accelerate::test {

// After this a test has failed. It finds what hangs, and measures nothing: what takes a second here
// may take a minute on a machine that is busy with other work.
constexpr std::chrono::seconds kDeadline{150};

struct RunOptions {
  std::string input{};                               // what the launcher can read; then it ends
  std::map<std::string, std::string> environment{};  // on top of that of the test
  bool in_terminal = false;                          // all three streams are one terminal
  std::vector<std::string> through{};                // what runs the launcher: {"ip", "netns", ...}
  bool as_is = false;                                // the arguments are a command of their own
};

struct RunResult {
  int exit_code = -1;  // 128 + signal if the launcher itself was killed
  std::string out;     // both streams if it ran in a terminal
  std::string err;
};

// One run of the launcher. Killed if it still runs when this object goes.
class LauncherRun {
 public:
  LauncherRun(const std::vector<std::string>& arguments, const RunOptions& options);
  LauncherRun(const LauncherRun&) = delete;
  LauncherRun& operator=(const LauncherRun&) = delete;
  ~LauncherRun();

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // Types into the terminal.
  void type(const std::string& text) const;
  void resize_terminal(unsigned short rows, unsigned short columns) const;
  // Waits until `text` has appeared `times` times in what the workers wrote to their output.
  void wait_for_output(const std::string& text, int times = 1);
  const std::string& out() const { return result_.out; }
  // The same for the error stream.
  void wait_for_error(const std::string& text);
  const std::string& err() const { return result_.err; }
  // Waits for the end of the launcher.
  RunResult wait();
  // The reader of the output goes away.
  void close_output() { out_.reset(); }

 private:
  void start_with_pipes(const RunOptions& options, char* const* argv, char* const* envp);
  void start_in_terminal(char* const* argv, char* const* envp);
  // Reads what is there, waiting at most 100 ms; false when both streams have ended.
  bool pump();

  pid_t pid_ = -1;
  bool waited_ = false;
  UniqueFd out_;  // the terminal, if there is one
  UniqueFd err_;
  RunResult result_;
};

// Workers are shell scripts. After each test none of their processes may be left.
class Launcher : public ::testing::Test {
 protected:
  Launcher();
  void TearDown() override;

  std::unique_ptr<LauncherRun> start(const std::vector<std::string>& arguments,
                                     RunOptions options = {});
  RunResult run(const std::vector<std::string>& arguments, RunOptions options = {});
  // Runs `script` with sh in `num_processes` workers.
  RunResult run_script(int num_processes, const std::string& script,
                       std::vector<std::string> flags = {});
  std::unique_ptr<LauncherRun> start_script(int num_processes, const std::string& script,
                                            std::vector<std::string> flags = {},
                                            RunOptions options = {});

  // Processes that this test has started, directly or not.
  std::vector<pid_t> processes() const;
  void expect_no_process_left() const;

  ScratchFolder folder_;

 private:
  std::string mark_;  // a variable in the environment of all of them
};

// The sorted lines of `text`: workers write in any order.
std::vector<std::string> sorted_lines(const std::string& text);

}  // namespace accelerate::test
