// What a job would start.
#pragma once

#include <string>

#include "launch/launch_plan.h"

namespace accelerate::cli {

// The command of every worker on this machine with the variables that it gets beside those of this
// process; for mpirun, srun and ssh their commands. Starts nothing. Throws as launch::run_job().
std::string dry_run_text(const launch::LaunchPlan& plan);

}  // namespace accelerate::cli
