// What workers leave behind: processes that left their group and lost their parent.
#pragma once

#include <sys/types.h>

#include <set>

namespace accelerate::launch {

// While it lives, descendants of this process whose parent ends become children of this process
// (and not of init), so that none of them can outlive the job unseen. Children that were there
// before are left alone: `accelerate launch ... > >(tee log)` makes tee one of them.
class OrphanReaper {
 public:
  OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;
  ~OrphanReaper();

  // Kills all adopted processes and waits until they are gone, at most two seconds: a process that
  // hangs inside the kernel is left. Call it when all workers have been reaped.
  void kill_adopted();

  // The child `pid` was reaped: whoever gets its number is not one that was there before.
  void child_reaped(pid_t pid) { older_children_.erase(pid); }

 private:
  std::set<pid_t> older_children_;
};

}  // namespace accelerate::launch
