// The two entries of libaccelerate_cuda.so.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/version.h>

#include <string>

#include "accelerate/export.h"
#include "cuda/graph.h"
#include "cuda/kernel_table.h"
#include "cuda/nccl_group.h"
#include "device/cuda_plugin.h"

namespace accelerate::cuda {
namespace {

int device_count() { return c10::cuda::device_count(); }

std::string device_uuid(int device) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  std::string text = "GPU-";
  for (const char byte : properties->uuid.bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 0xF];
  }
  return text;
}

int compute_capability(int device) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  return properties->major * 10 + properties->minor;
}

void set_device(int device) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); }

void empty_cache() { c10::cuda::CUDACachingAllocator::emptyCache(); }

void synchronize() { c10::cuda::device_synchronize(); }

void forbid_waiting(bool on) {
  c10::cuda::warning_state().set_sync_debug_mode(on ? c10::cuda::SyncDebugMode::L_ERROR
                                                    : c10::cuda::SyncDebugMode::L_DISABLED);
}

int64_t peak_memory(int device) {
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return stats.allocated_bytes[0].peak;
}

void reset_peak_memory(int device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

const device::CudaPlugin kPlugin = {
    .device_count = device_count,
    .device_uuid = device_uuid,
    .compute_capability = compute_capability,
    .set_device = set_device,
    .empty_cache = empty_cache,
    .make_nccl = make_nccl,
    .synchronize = synchronize,
    .on_side_stream = on_side_stream,
    .make_graph = make_graph,
    .forbid_waiting = forbid_waiting,
    .peak_memory = peak_memory,
    .reset_peak_memory = reset_peak_memory,
    .kernels = kernel_table(),
    .kernel_capability = ACCELERATE_KERNEL_CAPABILITY,
};

}  // namespace
}  // namespace accelerate::cuda

extern "C" {

ACCELERATE_EXPORT const accelerate::device::CudaPluginVersion* accelerate_cuda_plugin_version() {
  static constexpr accelerate::device::CudaPluginVersion kVersion{
      .table = accelerate::device::kCudaPluginTable,
      .accelerate = ACCELERATE_VERSION,
      .torch = TORCH_VERSION};
  return &kVersion;
}

ACCELERATE_EXPORT const accelerate::device::CudaPlugin* accelerate_cuda_plugin() {
  return &accelerate::cuda::kPlugin;
}
}
