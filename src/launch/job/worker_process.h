// One worker: a child process in a process group of its own.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace accelerate::launch {

struct WorkerStart {
  const std::vector<std::string>& command;  // argv; the first is the path of the executable
  std::vector<std::string> environment;     // NAME=value
  int stdin_fd;                             // becomes descriptors 0, 1 and 2 of the worker
  int stdout_fd;
  int stderr_fd;
  int error_fd;                    // stays open in the worker under its number; -1: there is none
  sigset_t signal_mask;            // what the worker starts with: the launcher itself blocks more
  std::vector<cpu_set_t> cores{};  // the only ones it may run on, see processor_set(); empty: any
  int death_signal = SIGKILL;      // from the kernel, when the launcher dies
  bool own_group = true;  // false: stays in the launcher's group, so that it may read the terminal
};

// Starts the worker, and kills it (and its group) if it still runs when this object goes. The
// kernel signals it too if the launcher dies first. Used by one thread.
class WorkerProcess {
 public:
  // Forks. Does not wait for the program to begin: confirm_started() does. Throws CommError if
  // the system has no room for another process.
  explicit WorkerProcess(const WorkerStart& start);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();

  // Blocks until the program runs (about a millisecond). Throws ProgramError if the kernel refused
  // to execute it.
  void confirm_started(const std::string& program);

  // Sends `signal` to the worker and all of its group; to the worker alone if it has no group.
  // Nothing happens once it was reaped.
  void send(int signal) const;

  // Sends `signal` to what the worker itself has started; false if there is nothing of that.
  bool send_to_children(int signal) const;

  // The worker is a zombie: kills what it left in its group, then takes its wait status. In this
  // order the number of the group cannot belong to someone else yet.
  int reap();

  pid_t pid() const { return pid_; }
  bool is_reaped() const { return reaped_; }
  bool has_own_group() const { return own_group_; }

 private:
  pid_t pid_ = -1;
  bool own_group_;
  bool reaped_ = false;
  UniqueFd exec_error_;  // delivers errno of a failed exec, or ends when the program runs
};

}  // namespace accelerate::launch
