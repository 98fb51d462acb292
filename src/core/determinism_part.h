// What the sums of a deterministic run depend on, in a checkpoint.
#pragma once

#include <memory>

#include "checkpoint/state/state_part.h"

namespace accelerate {

// A fact of checkpoints of a deterministic accelerator: ranks, and threads of this process.
// Loading one into a deterministic accelerator on the same number of ranks throws CheckpointError
// if the number of threads is another.
std::unique_ptr<checkpoint::StatePart> determinism_part(int world_size);

}  // namespace accelerate
