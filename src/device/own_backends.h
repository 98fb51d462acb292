// The backends that this library brings.
#pragma once

#include <memory>

#include "device/device_backend.h"

namespace accelerate::device {

std::unique_ptr<const DeviceBackend> make_cpu_backend();
// Over libaccelerate_cuda.so, which the first question about GPUs loads.
std::unique_ptr<const DeviceBackend> make_cuda_backend();

}  // namespace accelerate::device
