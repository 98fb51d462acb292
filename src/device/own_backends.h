// The backends that this library brings.
#pragma once

#include <memory>

#include "device/device_backend.h"

namespace accelerate::device {

std::unique_ptr<const DeviceBackend> make_cpu_backend();
// Over libaccelerate_cuda.so, which the first question about GPUs loads.
std::unique_ptr<const DeviceBackend> make_cuda_backend();
// Without devices until open_xla_devices() was called.
std::unique_ptr<const DeviceBackend> make_xla_backend();

}  // namespace accelerate::device
