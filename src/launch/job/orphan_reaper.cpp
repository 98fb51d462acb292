#include "launch/job/orphan_reaper.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

namespace accelerate::launch {
namespace {

// Children of this process as the kernel lists them; none where it does not.
std::set<pid_t> children() {
  const std::string self = std::to_string(getpid());
  std::ifstream list("/proc/self/task/" + self + "/children");
  std::set<pid_t> pids;
  for (pid_t pid = 0; list >> pid;) pids.insert(pid);
  return pids;
}

}  // namespace

OrphanReaper::OrphanReaper() : older_children_(children()) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

OrphanReaper::~OrphanReaper() { prctl(PR_SET_CHILD_SUBREAPER, 0); }

void OrphanReaper::kill_adopted() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < deadline) {
    bool found = false;
    // A killed process may have children of its own, which then come to us: look again.
    for (const pid_t pid : children()) {
      if (older_children_.count(pid) != 0) continue;
      found = true;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, WNOHANG);
    }
    if (!found) return;
    poll(nullptr, 0, 1);
  }
}

}  // namespace accelerate::launch
