// Seeds of random number generators; rng_types.h synchronises their states.
#pragma once

#include <cstdint>
#include <optional>

#include "accelerate/export.h"
#include "accelerate/rng_types.h"

namespace accelerate {

struct SeedOptions {
  // Add the rank to the seed, so that each rank draws different numbers.
  bool device_specific = false;
  // This rank; read from the environment where it is not given, so that an Accelerator need not
  // exist yet.
  std::optional<int> rank{};
  // Use algorithms whose results are the same in every run, where libtorch has them; operations for
  // which it has none throw. Stays on.
  bool deterministic = false;
};

// Seeds libtorch's own generators, of the CPU and of all GPUs of this process. Returns the seed
// that was used here. Not collective. Like ProcessState it may be the first use of CUDA.
ACCELERATE_EXPORT uint64_t set_seed(uint64_t seed, const SeedOptions& options = {});

}  // namespace accelerate
