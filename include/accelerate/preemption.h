// Stopping in time when a cluster takes the machine away: a signal becomes a checkpoint and an exit
// code of its own.
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
// into that. Where the signal goes to one rank alone, all ranks stop all the same. The launcher
// ends with the exit code on which all ranks agree, which is this one.
#pragma once

#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// The number of sysexits.h for a failure that is worth trying again.
inline constexpr int kPreemptedExitCode = 75;

struct PreemptionOptions {
  // While the accelerator lives these signals no longer end the process, they are noted: see
  // Accelerator::should_checkpoint_and_exit(). Empty: signals do what they did.
  std::vector<int> signals{};
  // What the program should return when it stops for that reason, so that whoever started it knows
  // to start it again: 1 to 255, and not the code that the shell shows for a death by the signal.
  int exit_code = kPreemptedExitCode;
};

// Notes signals for as long as it lives, and gives them back to whoever handled them before. A
// handler that was there before is called too. Several may live at once, also for the same signal.
// Any thread may make it and let it go.
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
