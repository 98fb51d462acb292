// Ends a job whose launcher was killed.
#pragma once

#include <sys/types.h>

#include "launch/unique_fd.h"

namespace accelerate::launch {

// A small process beside the launcher that sleeps until the launcher dies without saying goodbye
// (SIGKILL, out of memory) and then kills the process groups of its workers. The kernel kills the
// workers themselves; this is for what they started, such as the program inside a wrapper script.
// It costs one fork. Where that fails the job runs without it.
class JobGuard {
 public:
  JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  ~JobGuard();

  // The group `pgid` belongs to the job from now on, until forget() says that it is gone.
  void watch(pid_t pgid) { tell(pgid); }
  void forget(pid_t pgid) { tell(-pgid); }

  // The child `pid` was reaped. If it was the guard, its number may belong to someone else from now
  // on: the job runs without a guard.
  void child_reaped(pid_t pid);

 private:
  void tell(pid_t message);

  UniqueFd to_guard_;
  pid_t pid_ = -1;  // -1: there is none
};

}  // namespace accelerate::launch
