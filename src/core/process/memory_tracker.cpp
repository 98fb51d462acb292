#include "accelerate/memory_tracker.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "accelerate/memory.h"
#include "device/device_backend.h"

namespace accelerate {
namespace {

struct HostMemory {
  int64_t resident_bytes = 0;
  int64_t peak_bytes = 0;
};

// From lines such as "VmRSS:     12345 kB".
HostMemory host_memory() {
  HostMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    words >> name >> kilobytes;
    if (name == "VmRSS:") memory.resident_bytes = kilobytes * 1024;
    if (name == "VmHWM:") memory.peak_bytes = kilobytes * 1024;
  }
  return memory;
}

// Sets VmHWM to VmRSS (proc(5), clear_refs). Without permission it stays, which report() allows
// for.
void reset_host_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::string readable(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"bytes", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(std::abs(bytes));
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s",
                bytes < 0 ? -value : value, kUnits[unit]);
  return text.data();
}

std::string signed_readable(int64_t bytes) {
  return std::string(bytes < 0 ? "" : "+").append(readable(bytes));
}

std::string line_of(const std::string& what, const MemoryUsage& usage) {
  return "\n  " + what + ": " + readable(usage.begin_bytes) + " at the start, " +
         signed_readable(usage.used_bytes()) + " at the end, " +
         signed_readable(usage.peaked_bytes()) + " at the peak of " + readable(usage.peak_bytes);
}

}  // namespace

void clear_device_cache() { device::empty_all_caches(); }

std::string MemoryReport::to_string() const {
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.3f s", wall_time.count());
  std::string text = name + ": " + seconds.data() + line_of("host memory", host);
  if (device_memory) text += line_of(device.str() + " memory", *device_memory);
  return text;
}

MemoryTracker::MemoryTracker(std::string name, c10::Device device)
    : name_(std::move(name)), device_(device::device_backend(device.type()).numbered(device)) {
  const device::DeviceBackend& backend = device::device_backend(device_.type());
  backend.synchronize(device_);
  backend.reset_peak_memory(device_);
  if (const auto memory = backend.memory(device_)) device_begin_bytes_ = memory->allocated_bytes;
  reset_host_peak();
  const HostMemory memory = host_memory();
  host_begin_bytes_ = memory.resident_bytes;
  host_peak_at_begin_bytes_ = memory.peak_bytes;
  begin_ = std::chrono::steady_clock::now();
}

MemoryReport MemoryTracker::report() const {
  const device::DeviceBackend& backend = device::device_backend(device_.type());
  backend.synchronize(device_);
  MemoryReport report{.name = name_,
                      .wall_time = std::chrono::steady_clock::now() - begin_,
                      .host = {.begin_bytes = host_begin_bytes_},
                      .device = device_};
  const HostMemory memory = host_memory();
  report.host.end_bytes = memory.resident_bytes;
  report.host.peak_bytes = std::max(host_begin_bytes_, memory.resident_bytes);
  if (memory.peak_bytes > host_peak_at_begin_bytes_) {
    report.host.peak_bytes = std::max(report.host.peak_bytes, memory.peak_bytes);
  }
  if (const auto on_device = backend.memory(device_)) {
    report.device_memory = {.begin_bytes = device_begin_bytes_,
                            .end_bytes = on_device->allocated_bytes,
                            .peak_bytes = on_device->peak_bytes};
  }
  return report;
}

}  // namespace accelerate
