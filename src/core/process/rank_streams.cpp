#include "core/process/rank_streams.h"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "base/split_mix.h"
#include "device/device_backend.h"

namespace accelerate {
namespace {

// Seeds that are near each other give streams that are not.
uint64_t mixed_seed(uint64_t seed, int rank) {
  return split_mix(seed + static_cast<uint64_t>(rank) * kSplitMixStep);
}

void reseed(c10::Device device, int rank) {
  at::Generator generator = device::device_backend(device.type()).generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(mixed_seed(generator.current_seed(), rank));
}

}  // namespace

void RankStreams::separate() {
  if (std::exchange(separate_, true)) return;
  reseed(c10::kCPU, rank_);
  if (!device_.is_cpu()) reseed(device_, rank_);
}

}  // namespace accelerate
