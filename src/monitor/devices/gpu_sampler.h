// What NVIDIA's GPUs of this machine do, asked of the driver's own library at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accelerate::monitor {

struct GpuUsage {
  uint64_t index = 0;
  std::string name{};
  uint64_t memory_bytes = 0;  // of the device
  uint64_t used_bytes = 0;
  double busy = 0;     // 0 to 1: part of the last moments in which a kernel ran
  double watts = 0;    // 0: not known
  double celsius = 0;  // 0: not known
};

// Opens libnvidia-ml.so.1, which comes with the driver. Where there is none there are no GPUs.
// Calls may take milliseconds, and longer where a driver is stuck: not for a thread that trains or
// supervises.
class GpuSampler {
 public:
  GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;
  ~GpuSampler();

  std::vector<GpuUsage> sample() const;

 private:
  struct Library;
  Library* library_ = nullptr;  // null: there is none
};

}  // namespace accelerate::monitor
