// Stopping in time when a cluster takes the machine away: a signal leads to a checkpoint and a
// distinct exit code.
//
//   accelerate::Accelerator accelerator({.preemption = {.signals = {SIGTERM}}});
//   for (auto& batch : loader) {
//     ...
//     if (accelerator.should_checkpoint_and_exit()) {
//       accelerator.save_state("latest");
//       return accelerator.preemption_exit_code();
//     }
//   }
//
// `accelerate launch` hands the signal on to all ranks and kills what is left after its grace
// period (--grace_period), as clusters do after theirs: the longest batch and the save must fit
// into that. If only one rank gets the signal, all ranks still stop. The launcher
// exits with the code on which all ranks agree, which is this one.
#pragma once

#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// The code of sysexits.h for a temporary failure.
inline constexpr int kPreemptedExitCode = 75;

struct PreemptionOptions {
  // While the accelerator lives these signals no longer end the process but are recorded: see
  // Accelerator::should_checkpoint_and_exit(). Empty: signals keep their effect.
  std::vector<int> signals{};
  // What the program should return when it stops for that reason, so that its launcher knows to
  // restart it: 1 to 255, and not the code that the shell shows for a death by the signal.
  int exit_code = kPreemptedExitCode;
};

// Records signals for as long as it lives, then restores the previous handlers. A previous
// handler is called too. Several may live at once, also for the same signal.
// Any thread may create and destroy it.
class ACCELERATE_EXPORT SignalWatch {
 public:
  // Throws UsageError for a signal that cannot be handled.
  explicit SignalWatch(const std::vector<int>& signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Whether one of the signals came since the watch began. Stays so.
  bool raised() const noexcept;

 private:
  std::vector<int> signals_;
  std::vector<unsigned> seen_before_;
};

}  // namespace accelerate
