#include "support/stack_dump.h"

#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

namespace accelerate::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kMaxFrames = 64;

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void print_this_stack(int) {
  std::array<void*, kMaxFrames> frames;
  say("--- stack of a thread\n");
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMaxFrames), STDERR_FILENO);
  say("--- end of stack\n");
}

// Reads until end of file or the limit; on the limit the process is killed.
std::string output_within(int fd, pid_t pid, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now()).count();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) break;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  kill(pid, SIGKILL);
  return text;
}

// Empty where gdb is missing or cannot attach.
std::string stacks_by_gdb(pid_t pid, milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::string target = std::to_string(pid);
  std::vector<const char*> command = {"gdb",
                                      "-nx",
                                      "-batch",
                                      "-p",
                                      target.c_str(),
                                      "-ex",
                                      "set debuginfod enabled off",
                                      "-ex",
                                      "thread apply all bt 40",
                                      nullptr};
  pid_t gdb = 0;
  const int error = posix_spawnp(&gdb, "gdb", &actions, nullptr,
                                 const_cast<char* const*>(command.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  if (error == 0) {
    text = output_within(ends[0], gdb, limit);
    waitpid(gdb, nullptr, 0);
  }
  close(ends[0]);
  // Everything before the first thread is chatter about symbol files.
  const size_t start = text.find("\nThread ");
  return start == std::string::npos ? std::string() : text.substr(start + 1);
}

std::string stacks_by_signal(pid_t pid, const std::function<std::string()>& output_of_process) {
  const size_t before = output_of_process().size();
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    const size_t seen = output_of_process().size();
    syscall(SYS_tgkill, pid, std::atoi(entry.path().filename().c_str()), SIGQUIT);
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      if (output_of_process().find("--- end of stack", seen) != std::string::npos) break;
    }
  }
  return output_of_process().substr(before);
}

}  // namespace

void allow_stack_dump() {
#ifdef PR_SET_PTRACER
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
#endif
  // The first call may load a library, which a signal handler must not do.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_handler = print_this_stack;
  action.sa_flags = SA_RESTART;
  sigaction(SIGQUIT, &action, nullptr);
}

std::string stacks_of(pid_t pid, std::chrono::seconds limit,
                      const std::function<std::string()>& output_of_process) {
  std::string text = stacks_by_gdb(pid, limit);
  return text.empty() ? stacks_by_signal(pid, output_of_process) : text;
}

}  // namespace accelerate::test
