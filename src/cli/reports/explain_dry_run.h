// What a job would start.
#pragma once

#include <string>

#include "launch/plan/launch_plan.h"

namespace accelerate::cli {

// The command of every worker on this machine with the variables that it gets beside those of this
// process; for srun and ssh their commands and the workers of all machines; for mpirun its command
// and what it hands down. What is decided only when the job runs is in parentheses, and so are
// secrets. Starts nothing. Throws as launch::run_job().
std::string dry_run_text(const launch::LaunchPlan& plan);

}  // namespace accelerate::cli
