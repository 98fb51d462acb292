// Carries out orders on this machine: the event loop of the launcher.
#pragma once

#include "launch/plan/machine_plan.h"
#include "launch/remote/job_control.h"

namespace accelerate::launch {

// Runs the part of `plan` that belongs to this machine as `control` orders, until it orders to
// finish, and returns the exit code of that order. Blocks until no process of the job is left here.
//
// The output of the workers goes to descriptors 1 and 2 of this process; rank 0 reads its
// descriptor 0, the others read nothing. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the
// workers, which are killed after plan.signal_grace or at a second SIGINT. The kernel kills the
// workers if this process is killed. If `lifeline` is a descriptor, numbers of signals are read
// from it, a byte each, and its end counts as SIGHUP: who started this launcher has gone.
//
// The process must have one thread, no other use for its children's exit statuses meanwhile, and
// descriptors 0, 1 and 2 open. Throws ProgramError if the program cannot be executed and CommError
// if the system refuses processes or descriptors; no worker runs then.
int run_machine(const MachinePlan& plan, JobControl& control, int lifeline = -1);

}  // namespace accelerate::launch
