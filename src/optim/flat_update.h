// Updates of flat vectors, by kernels where the device has them and composed of operators
// elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include "device/cuda_kernels.h"

namespace accelerate {

// One update by AdamW. All vectors are of one length, all scalars are on their device: nothing
// waits for it.
void flat_adamw_update(const device::FlatAdamWArguments& arguments);

// The norm of a flat float32 vector, as a scalar on its device.
at::Tensor flat_gradient_norm(const at::Tensor& gradient);

}  // namespace accelerate
