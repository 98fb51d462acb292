// Ends a job whose launcher was killed.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace accelerate::launch {

// A small process beside the launcher that sleeps until the launcher dies without saying goodbye
// (SIGKILL, out of memory) and then ends the process groups of its workers. The kernel signals the
// workers themselves; this is for what they started, such as the program inside a wrapper script,
// also where that left its group or session: it is known by the variable mark() in its environment.
// It costs one fork. Where that fails the job runs without it.
class JobGuard {
 public:
  enum class Manner {
    kKill,         // at once
    kAskThenKill,  // it has ranks of its own to end: SIGTERM, and SIGKILL if it is still there
                   // later
  };

  JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  ~JobGuard();

  // NAME=value for the environment of every worker.
  const std::string& mark() const { return mark_; }
  static constexpr const char* kMarkName = "ACCELERATE_SUPERVISED_BY";

  // The group `pgid` belongs to the job from now on, until forget() says that it is gone.
  void watch(pid_t pgid, Manner manner) { tell({pgid, manner}); }
  void forget(pid_t pgid) { tell({-pgid, Manner::kKill}); }

  // The child `pid` was reaped. If it was the guard, its number may belong to someone else from now
  // on: the job runs without a guard, and this is true.
  bool child_reaped(pid_t pid);

 private:
  struct Word {
    pid_t group;  // below 0: that group is gone
    Manner manner;
  };
  [[noreturn]] static void stand_guard(int from_launcher, const std::string& token);
  void tell(const Word& word);

  const std::string token_;  // of this launcher alone
  const std::string mark_;
  UniqueFd to_guard_;
  pid_t pid_ = -1;  // -1: there is none
};

}  // namespace accelerate::launch
