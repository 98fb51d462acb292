#include "launch/job/signal_inbox.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGTSTP}) {
    if (!is_ignored(signal)) sigaddset(&watched, signal);
  }
  for (const int signal : {SIGCHLD, SIGTERM, SIGWINCH}) sigaddset(&watched, signal);

  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &original_pipe_);
  // A parent that ignores SIGCHLD hands this down, and the kernel would then drop exit statuses.
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &original_child_);
  sigprocmask(SIG_BLOCK, &watched, &original_mask_);
  fd_ = UniqueFd(signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) {
    const int error = errno;
    restore();
    throw CommError({.what = "cannot watch for signals: " + std::string(std::strerror(error)),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
}

SignalInbox::~SignalInbox() {
  while (next()) {
  }
  restore();
}

void SignalInbox::restore() {
  sigaction(SIGPIPE, &original_pipe_, nullptr);
  sigaction(SIGCHLD, &original_child_, nullptr);
  sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

std::optional<signalfd_siginfo> SignalInbox::next() {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return info;
}

}  // namespace accelerate::launch
