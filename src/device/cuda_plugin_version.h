// Which build a libaccelerate_cuda.so belongs to. Standard headers only.
#pragma once

#include <cstdint>

namespace accelerate::device {

// Read before anything else of a plug-in is trusted, so this layout never changes.
struct CudaPluginVersion {
  uint32_t table = 0;                // kCudaPluginTable
  const char* accelerate = nullptr;  // version of this project, "0.1.0"
  const char* torch = nullptr;       // version of the headers it was compiled with, "2.9.1"
};

// Raise it with every change to what the library and its plug-in share: CudaPlugin, CudaKernels,
// DeviceGraph and ExchangeControl.
inline constexpr uint32_t kCudaPluginTable = 3;

// Names of the two C entries of the plug-in, of types `const CudaPluginVersion* ()` and `const
// CudaPlugin* ()`. It exports nothing else.
inline constexpr const char* kCudaPluginVersionEntry = "accelerate_cuda_plugin_version";
inline constexpr const char* kCudaPluginEntry = "accelerate_cuda_plugin";

}  // namespace accelerate::device
