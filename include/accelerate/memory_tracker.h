// How long a block of code takes and how much memory it needs.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "accelerate/export.h"

namespace accelerate {

struct MemoryUsage {
  int64_t begin_bytes = 0;
  int64_t end_bytes = 0;
  int64_t peak_bytes = 0;  // in between

  int64_t used_bytes() const { return end_bytes - begin_bytes; }
  int64_t peaked_bytes() const { return peak_bytes - begin_bytes; }
};

struct ACCELERATE_EXPORT MemoryReport {
  std::string name{};
  std::chrono::duration<double> wall_time{};
  // The resident memory of the process, with everything in it.
  MemoryUsage host{};
  // What tensors occupy on the GPU; nothing without one.
  c10::Device device{c10::kCPU};
  std::optional<MemoryUsage> device_memory{};

  // Several lines for people.
  std::string to_string() const;
};

// Starts measuring when it is created; report() covers the time since then and can be called
// repeatedly. Both wait for the GPU, so that the time is that of the work.
//
//   MemoryTracker tracker("epoch 3", accelerator.device());
//   train();
//   accelerator.print(tracker.report().to_string());
//
// The peaks are counters of the process and of the device, which the constructor resets: trackers
// that overlap, also in other threads, distort each other's peaks. Where the system does not
// let the host's counter be reset, its peak is that of the process if it rose inside the block, and
// else the higher one of begin and end.
class ACCELERATE_EXPORT MemoryTracker {
 public:
  explicit MemoryTracker(std::string name, c10::Device device = c10::kCPU);
  MemoryReport report() const;

 private:
  std::string name_;
  c10::Device device_;
  int64_t host_begin_bytes_ = 0;
  int64_t host_peak_at_begin_bytes_ = 0;
  int64_t device_begin_bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace accelerate
