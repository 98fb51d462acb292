// The command line of mpirun.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/hostfile.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

enum class MpiKind {
  kOpenMpi,
  kHydra,  // MPICH, Intel MPI and MVAPICH (its mpirun, not its mpirun_rsh)
};

// Which MPI the program `words` belongs to: what it says to --version. Runs it. Throws ConfigError
// if it is none that is known, or does not run.
MpiKind find_mpi_kind(const std::vector<std::string>& words);

// What starts the command of `plan` as plan.num_processes ranks through the mpirun `words`, on
// `hosts` (none: where mpirun wants), plan.processes_per_machine() on each. They are named on the
// command line: no two MPIs read the same host file.
// The variables of mpirun's own environment that are named in `variables` reach all ranks, also on
// other machines. A pure function but for the user's identity:
// Open MPI wants to be told that it runs as root.
std::vector<std::string> mpirun_command(const LaunchPlan& plan, MpiKind kind,
                                        const std::vector<Host>& hosts,
                                        const std::vector<std::string>& words,
                                        const std::vector<std::string>& variables);

}  // namespace accelerate::launch
