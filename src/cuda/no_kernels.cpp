// Built instead of kernel_table.cpp where there is no nvcc: operations then use libtorch's kernels.
#include "cuda/kernel_table.h"

namespace accelerate::cuda {

const device::CudaKernels* kernel_table() { return nullptr; }

}  // namespace accelerate::cuda
