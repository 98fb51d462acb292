// The one entry of libaccelerate_cuda.so.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "compat/cuda_plugin.h"

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

void set_device(int device) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); }

void empty_cache() { c10::cuda::CUDACachingAllocator::emptyCache(); }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, int device,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  group->setBoundDeviceId(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return group;
}

constexpr compat::CudaPlugin kPlugin = {
    .device_count = device_count,
    .device_uuid = device_uuid,
    .set_device = set_device,
    .empty_cache = empty_cache,
    .make_nccl = make_nccl,
};

}  // namespace
}  // namespace accelerate::cuda

extern "C" const accelerate::compat::CudaPlugin* accelerate_cuda_plugin() {
  return &accelerate::cuda::kPlugin;
}
