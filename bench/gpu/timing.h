// Times of GPU work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "device/cuda_plugin.h"

namespace bench {

// Median seconds of one call of `work`, over `blocks` blocks of `calls` calls each, after `warmup`
// calls. The device is waited for around each block, not inside.
inline double median_seconds(const std::function<void()>& work, int warmup, int blocks, int calls) {
  const auto* plugin = accelerate::device::cuda_plugin();
  for (int i = 0; i < warmup; ++i) work();
  plugin->synchronize();
  std::vector<double> seconds;
  for (int block = 0; block < blocks; ++block) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    plugin->synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    seconds.push_back(taken.count() / calls);
  }
  std::ranges::nth_element(seconds, seconds.begin() + blocks / 2);
  return seconds[static_cast<size_t>(blocks) / 2];
}

// Bytes that tensors hold at most while `work` runs once.
inline int64_t peak_bytes(const std::function<void()>& work) {
  const auto* plugin = accelerate::device::cuda_plugin();
  plugin->synchronize();
  plugin->reset_peak_memory(0);
  work();
  plugin->synchronize();
  return plugin->peak_memory(0);
}

}  // namespace bench
