// The rank of this process for those who know no accelerator: log lines, and what is said once.
// Standard headers only.
#pragma once

#include <string>

namespace accelerate {

// The rank that the launcher of this process gave it, in the names of torchrun, Open MPI, PMI,
// MVAPICH or SLURM, chosen as RankEnvironment chooses; "" where none did.
std::string own_rank();

}  // namespace accelerate
