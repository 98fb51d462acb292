// The random number generators of libtorch in a checkpoint.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/state_part.h"

namespace accelerate::checkpoint {

// random_states_<rank>.pkl, one for each rank: the generator of the CPU and those of all GPUs that
// the process sees, under the names of the Python library, and its counter of micro-batches.
std::string rng_file(int rank);

// A rank that the saved run had takes the states of that rank; another one starts from seeds made
// of rank 0's states and its own number. To be applied last. `device` is the GPU of this rank, or
// the CPU; `step` goes into the file.
std::unique_ptr<StatePart> rng_part(int rank, c10::Device device, int64_t step);

}  // namespace accelerate::checkpoint
