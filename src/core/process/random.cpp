#include "accelerate/random.h"

#include <ATen/Context.h>

#include "accelerate/process_state.h"
#include "base/environment.h"
#include "device/device_backend.h"

namespace accelerate {

uint64_t set_seed(uint64_t seed, const SeedOptions& options) {
  if (options.device_specific) {
    const int rank =
        options.rank ? *options.rank : RankEnvironment::read(environment_variable).rank;
    seed += static_cast<uint64_t>(rank);
  }
  device::seed_all_devices(seed);
  if (options.deterministic) {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
  }
  return seed;
}

}  // namespace accelerate
