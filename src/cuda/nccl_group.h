// NCCL among the ranks of a group.
#pragma once

#include "device/cuda_plugin.h"

namespace accelerate::cuda {

// See CudaPlugin::make_nccl. What is still open when the process calls exit() is ended then.
device::OpenedExchanges make_nccl(const device::NcclRequest& request);

}  // namespace accelerate::cuda
