// The fused kernels behind the table of cuda_kernels.h.
#pragma once

#include "device/cuda_kernels.h"

namespace accelerate::cuda {

// Null where the library was built without nvcc.
const device::CudaKernels* kernel_table();

}  // namespace accelerate::cuda
