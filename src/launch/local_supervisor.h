// Runs the workers of a job on this machine, from the first to the last process of it.
#pragma once

#include "launch/launch_outcome.h"
#include "launch/launch_plan.h"

namespace accelerate::launch {

// Starts all workers of `plan` and blocks until none of their processes is left.
//
// The output of the workers goes to descriptors 1 and 2 of this process; rank 0 reads its
// descriptor 0, the others read nothing. When one worker fails the others are asked to stop
// (SIGTERM), and killed after plan.failure_grace. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on
// to the workers, which are killed after plan.signal_grace or at a second SIGINT. The kernel kills
// the workers if this process is killed.
//
// The process must have one thread, no other use for its children's exit statuses meanwhile, and
// descriptors 0, 1 and 2 open. Throws ProgramError if the program cannot be executed and CommError
// if the system refuses processes or descriptors; no worker runs then.
LaunchOutcome run_local_job(const LaunchPlan& plan);

}  // namespace accelerate::launch
