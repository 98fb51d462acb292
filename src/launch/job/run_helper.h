// The process beside a launcher that records devices and serves the page of a run.
#pragma once

#include "launch/plan/machine_plan.h"

namespace accelerate::launch {

// The hidden command of this program that it runs, with the folder, the number of the machine and
// the descriptor of the page behind it.
inline constexpr const char* kRunHelperCommand = "run-recorder";

// Starts it where `plan` records the run, with the page where `plan` has a socket for one, which is
// closed here. A process of its own: whatever it is asked, and however long a driver takes to
// answer, supervision goes on. The kernel ends it with this process. Where the system has no room
// for it the run goes on without; that is told. Call it while there is one thread.
void start_run_helper(const MachinePlan& plan);

}  // namespace accelerate::launch
