// What a person types, byte by byte, and the signals that end the questions.
#pragma once

#include <signal.h>

#include <array>
#include <ctime>
#include <optional>

namespace accelerate::cli {

// Reads descriptor 0. While this lives, signals to stop are let in only during a wait for input,
// which they end: none is missed, and none leaves a terminal or a file half changed. Those that
// were ignored stay so. One at a time.
class WizardInput {
 public:
  WizardInput();
  WizardInput(const WizardInput&) = delete;
  WizardInput& operator=(const WizardInput&) = delete;
  ~WizardInput();

  // Blocks until a byte comes. Nothing at the end of the input, after `timeout`, and when the
  // program is told to stop.
  std::optional<char> read_byte(const timespec* timeout = nullptr) const;

  // The signal that told the program to stop; 0: none did.
  int stop_signal() const;

 private:
  static constexpr std::array kStops = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};

  sigset_t before_mask_{};
  std::array<struct sigaction, kStops.size()> before_actions_{};
};

}  // namespace accelerate::cli
