// The random number generators of libtorch in a checkpoint.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/state/state_part.h"

namespace accelerate::checkpoint {

// random_states_<rank>.pkl, one for each rank: the generator of the CPU and, unless the rank
// computes on it, those of all devices of the rank's kind that the process sees, under the names of
// the Python library, and its counter of micro-batches.
std::string rng_file(int rank);
// Whether this library wrote the random states in the directory. Throws CheckpointError if they
// cannot be read.
bool has_rng_file_of_ours(const std::filesystem::path& directory);

// A rank that the saved run had takes the states of that rank; another one starts from seeds made
// of its own number and the states of the first rank whose file is there: rank 0, unless each node
// has a directory of its own. To be applied last. `device` is that of this rank; `step` goes into
// the file.
std::unique_ptr<StatePart> rng_part(int rank, c10::Device device, int64_t step);

}  // namespace accelerate::checkpoint
