#include "cli/wizard/wizard_input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace accelerate::cli {
namespace {

volatile sig_atomic_t g_stop_requested = 0;  // the signal

extern "C" void request_stop(int signal) { g_stop_requested = signal; }

}  // namespace

WizardInput::WizardInput() {
  g_stop_requested = 0;
  sigset_t stops;
  sigemptyset(&stops);
  for (const int stop : kStops) sigaddset(&stops, stop);
  sigprocmask(SIG_BLOCK, &stops, &before_mask_);
  struct sigaction action {};
  action.sa_handler = request_stop;
  for (size_t i = 0; i < kStops.size(); ++i) {
    sigaction(kStops[i], nullptr, &before_actions_[i]);
    if (before_actions_[i].sa_handler != SIG_IGN) sigaction(kStops[i], &action, nullptr);
  }
}

WizardInput::~WizardInput() {
  for (size_t i = 0; i < kStops.size(); ++i) sigaction(kStops[i], &before_actions_[i], nullptr);
  sigprocmask(SIG_SETMASK, &before_mask_, nullptr);
}

std::optional<char> WizardInput::read_byte(const timespec* timeout) const {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  int count = 0;
  do {
    count = ppoll(&ready, 1, timeout, &before_mask_);
  } while (count < 0 && errno == EINTR && g_stop_requested == 0);
  char c = 0;
  if (count <= 0 || read(STDIN_FILENO, &c, 1) != 1) return std::nullopt;
  return c;
}

int WizardInput::stop_signal() const { return g_stop_requested; }

}  // namespace accelerate::cli
