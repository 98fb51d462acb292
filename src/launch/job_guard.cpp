#include "launch/job_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <set>

namespace accelerate::launch {
namespace {

// The guard itself. Signals that end a job do not reach it: it has a session of its own.
[[noreturn]] void stand_guard(int from_launcher) {
  setsid();
  prctl(PR_SET_NAME, "accelerate-grd");
  std::set<pid_t> groups;
  while (true) {
    pid_t message = 0;
    const ssize_t count = read(from_launcher, &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof message)) break;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

JobGuard::JobGuard() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const UniqueFd from_launcher(ends[0]);
  to_guard_ = UniqueFd(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    to_guard_.reset();
    stand_guard(from_launcher.get());
  }
}

JobGuard::~JobGuard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // before the pipe ends, which it would take for our death
  waitpid(pid_, nullptr, 0);
}

void JobGuard::child_reaped(pid_t pid) {
  if (pid != pid_) return;
  pid_ = -1;
  to_guard_.reset();
}

void JobGuard::tell(pid_t message) {
  if (pid_ <= 0) return;
  // SIGPIPE is ignored while a job runs: it may just have died.
  [[maybe_unused]] const ssize_t written = write(to_guard_.get(), &message, sizeof message);
}

}  // namespace accelerate::launch
