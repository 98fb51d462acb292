// The fused kernels behind the table of cuda_kernels.h.
#pragma once

#include "compat/cuda_kernels.h"

namespace accelerate::cuda {

// Null where the library was built without nvcc.
const compat::CudaKernels* kernel_table();

}  // namespace accelerate::cuda
