#include "launch/job/run_helper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace accelerate::launch {
namespace {

constexpr const char* kTokenVariable = "ACCELERATE_MONITOR_TOKEN";

// Nothing of it reaches the launcher's streams, whose readers wait for their end.
void leave_streams() {
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0) return;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  if (nothing > STDERR_FILENO) close(nothing);
}

[[noreturn]] void become_helper(const MachinePlan& plan, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher) _exit(0);
  // Those come from terminals to all of a job.
  for (const int each : {SIGINT, SIGHUP, SIGQUIT, SIGTSTP}) signal(each, SIG_IGN);
  leave_streams();
  if (!plan.page_token.empty()) setenv(kTokenVariable, plan.page_token.c_str(), 1);
  if (plan.page_socket >= 0) fcntl(plan.page_socket, F_SETFD, 0);
  std::string command = kRunHelperCommand;
  std::string folder = plan.run_dir.string();
  std::string machine = std::to_string(plan.machine_rank);
  std::string socket = std::to_string(plan.page_socket);
  std::string name = "accelerate";
  std::array<char*, 6> words{name.data(),    command.data(), folder.data(),
                             machine.data(), socket.data(),  nullptr};
  execv("/proc/self/exe", words.data());
  _exit(127);
}

}  // namespace

void start_run_helper(const MachinePlan& plan) {
  if (plan.run_dir.empty()) return;
  const pid_t launcher = getpid();
  const pid_t child = fork();
  if (child == 0) become_helper(plan, launcher);
  if (child < 0) {
    std::fprintf(stderr,
                 "accelerate launch: the run has no page and no record of its devices: %s\n",
                 std::strerror(errno));
  }
  if (plan.page_socket >= 0) close(plan.page_socket);
}

}  // namespace accelerate::launch
