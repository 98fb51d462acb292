// A job from its plan to its exit code, whatever starts the workers.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_outcome.h"
#include "launch/plan/launch_plan.h"
#include "launch/plan/resolve_job.h"

namespace accelerate::launch {

// Resolves `request`, runs it to its end and returns the exit code of the program `accelerate`: 0,
// the status of the worker that failed first, 128 plus a signal, or kLostMachineExitCode. What went
// wrong is written to descriptor 2. Reserves the port, restarts what failed, meets the other
// machines.
//
// Called once, from a process with one thread whose descriptors 0, 1 and 2 are open; blocks until
// no process of the job is left on this machine. Throws ConfigError, ProgramError or CommError
// before any worker runs.
int run_job(const LaunchPlan& request);

// What run_job() would do.
struct JobPreview {
  JobPlan plan{};  // of the whole job
  // What this process would execute: the command of mpirun, of srun or one ssh a machine; for
  // LauncherKind::kLocal that of every worker.
  std::vector<std::vector<std::string>> commands{};
};
// Starts nothing, but asks an mpirun which it is. Throws as run_job() does.
JobPreview preview_job(const LaunchPlan& request);

// The hidden command `accelerate node-agent PLAN`, by which ssh and srun start a launcher on
// another machine: `plan_text` is what encode_remote_plan() makes, or "-": the plan is read from
// descriptor 0, which then carries signals. Returns its exit code.
int run_node_agent(const std::string& plan_text);

}  // namespace accelerate::launch
