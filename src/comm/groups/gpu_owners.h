// Which rank works on which GPU.
#pragma once

#include <string>

#include "compat/c10d.h"

namespace accelerate::comm {

// Tells the other ranks that this one works on `gpu`, a name that no two GPUs of the job share, and
// throws UsageError, on all ranks alike, that names the ranks if two of them work on one: NCCL
// would fail. Collective over all ranks of the store; blocks until all have said theirs, at most
// the timeout of `store`.
void require_gpu_of_its_own(c10d::Store& store, int rank, int world_size, const std::string& gpu);

}  // namespace accelerate::comm
