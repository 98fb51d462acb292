// CUDA graphs over at::cuda::CUDAGraph.
#pragma once

#include <functional>
#include <memory>

#include "compat/cuda_graph.h"

namespace accelerate::cuda {

void on_side_stream(const std::function<void()>& body);
std::unique_ptr<compat::DeviceGraph> make_graph();

}  // namespace accelerate::cuda
