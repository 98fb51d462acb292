// CUDA graphs over at::cuda::CUDAGraph.
#pragma once

#include <functional>
#include <memory>

#include "device/device_graph.h"

namespace accelerate::cuda {

void on_side_stream(const std::function<void()>& body);
std::unique_ptr<device::DeviceGraph> make_graph();

}  // namespace accelerate::cuda
