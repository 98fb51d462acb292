// From a job to what the launcher of this machine runs for it.
#pragma once

#include "launch/plan/machine_plan.h"
#include "launch/plan/resolve_job.h"
#include "launch/remote/remote_plan.h"

namespace accelerate::launch {

// Of node-agent, in place of a plan: it is read from descriptor 0.
inline constexpr const char* kPlanInInput = "-";

// The launcher that the user called: it starts ranks, or the mpirun, srun or ssh that starts them.
// Asks an mpirun which it is. Throws ConfigError or ProgramError if what starts them is not there.
MachinePlan machine_plan(const JobPlan& job);

// A launcher that another one started: its own share. Asks SLURM for its place where `remote` says
// so. Throws ConfigError if the plan makes no sense here.
MachinePlan machine_plan(const RemotePlan& remote);

// `plan` with its output at `place`.
template <class Plan>
Plan with_logs(Plan plan, const LogPlace& place) {
  plan.log_dir = place.folder;
  plan.log_run = place.run;
  return plan;
}

}  // namespace accelerate::launch
