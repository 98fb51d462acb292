// A kind of device that libtorch does not know, for tests: tensors of type "toy" lie in the memory
// of the host, and the CPU computes for them. It is to the library what another accelerator is: its
// own allocator, generators and counters, no streams, no pinned memory, no graphs.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

namespace accelerate::test {

inline constexpr int kToyDevices = 2;

inline c10::Device toy_device(int index = 0) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

// What the library asked of the toy devices.
struct ToyCalls {
  std::atomic<int> ends_of_step = 0;
  std::atomic<int> emptied_caches = 0;
  std::atomic<int> synchronizations = 0;
};
ToyCalls& toy_calls();

// Makes the devices known to libtorch and to the library, once for the process.
void install_toy_devices();

}  // namespace accelerate::test
