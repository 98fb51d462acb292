// What the sums of a deterministic run depend on, in a checkpoint.
#pragma once

#include <memory>

#include "checkpoint/state/state_part.h"

namespace accelerate {

// A fact of checkpoints of a deterministic accelerator: ranks, and threads of rank 0.
// Loading one into a deterministic accelerator on the same number of ranks throws CheckpointError
// on rank 0 if its number of threads is another; those of other ranks follow their machines.
std::unique_ptr<checkpoint::StatePart> determinism_part(int world_size, int rank);

}  // namespace accelerate
