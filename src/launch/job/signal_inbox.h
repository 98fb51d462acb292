// Signals as something that an event loop can read.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <optional>

#include "base/unique_fd.h"

namespace accelerate::launch {

// While it lives, the signals that concern a job (a child ended, stop, suspend, the terminal
// changed its size) wait in fd() instead of interrupting, and SIGPIPE is ignored. Signals that the
// process was told to ignore (nohup, a background job) stay ignored; SIGTERM and SIGCHLD never.
// One at a time in a process with one thread: this is process-wide state, put back at the end.
class SignalInbox {
 public:
  SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  ~SignalInbox();

  int fd() const { return fd_.get(); }

  // The next signal that came, or nothing. Does not block.
  std::optional<signalfd_siginfo> next();

  // The mask from before, which workers start with.
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  void restore();

  sigset_t original_mask_;
  struct sigaction original_pipe_;
  struct sigaction original_child_;
  UniqueFd fd_;
};

}  // namespace accelerate::launch
