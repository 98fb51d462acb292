#include "launch/job/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "accelerate/errors.h"
#include "launch/plan/command_line.h"
#include "launch/plan/folder_entries.h"

namespace accelerate::launch {
namespace {

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec: system calls only.
[[noreturn]] void become_worker(const WorkerStart& start, char* const* argv, char* const* envp,
                                pid_t launcher, int error_fd) {
  if (start.own_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, start.death_signal);
  if (getppid() != launcher) _exit(128 + SIGKILL);  // it died before the line above
  // A core that went offline meanwhile is no reason not to train.
  if (!start.cores.empty()) {
    sched_setaffinity(0, start.cores.size() * sizeof(cpu_set_t), start.cores.data());
  }
  int error = 0;
  if (dup2(start.stdin_fd, 0) < 0 || dup2(start.stdout_fd, 1) < 0 || dup2(start.stderr_fd, 2) < 0) {
    error = errno;
  } else {
    if (start.error_fd >= 0) fcntl(start.error_fd, F_SETFD, 0);
    // The launcher ignores SIGPIPE; a program expects to be told.
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
    execve(argv[0], argv, envp);
    error = errno;
  }
  [[maybe_unused]] const ssize_t written = write(error_fd, &error, sizeof error);
  _exit(127);
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerStart& start) : own_group_(start.own_group) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw CommError({.what = "cannot start a worker: " + std::string(std::strerror(errno)),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
  exec_error_ = UniqueFd(ends[0]);
  const UniqueFd error_end(ends[1]);
  const std::vector<char*> argv = c_strings(start.command);
  const std::vector<char*> envp = c_strings(start.environment);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    reaped_ = true;
    throw CommError({.what = "cannot start a worker: " + std::string(std::strerror(errno)),
                     .hint = "start fewer workers, or raise the limit on processes (ulimit -u)"});
  }
  if (pid_ == 0) become_worker(start, argv.data(), envp.data(), launcher, error_end.get());
  // Also from this side, so that a signal to the group reaches it whoever runs first.
  if (own_group_) setpgid(pid_, pid_);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(other.pid_),
      own_group_(other.own_group_),
      reaped_(std::exchange(other.reaped_, true)),
      exec_error_(std::move(other.exec_error_)) {}

WorkerProcess::~WorkerProcess() {
  if (reaped_) return;
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void WorkerProcess::confirm_started(const std::string& program) {
  int error = 0;
  ssize_t count;
  do {
    count = read(exec_error_.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  exec_error_.reset();
  if (count != static_cast<ssize_t>(sizeof error)) return;

  std::string hint;
  if (error == ENOEXEC) {
    hint = "it is neither a binary of this machine nor a script whose first line begins with #!";
  } else if (error == ENOENT) {
    hint = "the interpreter in its first line, or the loader of the binary, does not exist";
  }
  throw ProgramError(
      error == ENOENT ? 127 : 126,
      {.what = "cannot run '" + program + "': " + std::strerror(error), .hint = std::move(hint)});
}

void WorkerProcess::send(int signal) const {
  if (!reaped_) kill(own_group_ ? -pid_ : pid_, signal);
}

bool WorkerProcess::send_to_children(int signal) const {
  if (reaped_) return false;
  bool found = false;
  for (const auto& thread : folder_entries("/proc/" + std::to_string(pid_) + "/task")) {
    std::ifstream children(thread / "children");
    for (pid_t child; children >> child;) found = kill(child, signal) == 0 || found;
  }
  return found;
}

int WorkerProcess::reap() {
  if (own_group_) kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  return status;
}

}  // namespace accelerate::launch
