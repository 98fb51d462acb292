// Where the tests of training and of collectives put their tensors: on the CPU, or, where
// ACCELERATE_TEST_DEVICE is "cuda", on the first GPU, which all ranks then share through Gloo, or,
// where it is "nccl", on the GPU of the rank, which several share over NCCL where there are fewer.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"

namespace accelerate::test {

enum class TestDevice { kCpu, kGpuOverGloo, kGpuOverNccl };

inline TestDevice wanted_test_device() {
  const char* wanted = std::getenv("ACCELERATE_TEST_DEVICE");
  if (wanted == nullptr || std::string(wanted) == "cpu") return TestDevice::kCpu;
  if (std::string(wanted) == "cuda") return TestDevice::kGpuOverGloo;
  if (std::string(wanted) == "nccl") return TestDevice::kGpuOverNccl;
  throw std::invalid_argument("ACCELERATE_TEST_DEVICE must be cpu, cuda or nccl, not " +
                              std::string(wanted));
}

// What NCCL does not have: tests of sparse gradients are skipped there with this reason.
inline constexpr const char* kNoSparseSums = "NCCL adds up dense gradients only: prepare() refuses";

inline bool tests_on_gpu() { return wanted_test_device() != TestDevice::kCpu; }

// What moves their tensors between ranks on GPUs.
inline CudaBackend test_cuda_backend() {
  return wanted_test_device() == TestDevice::kGpuOverNccl ? CudaBackend::kNccl : CudaBackend::kGloo;
}

// For ranks, not for the program that starts them: a process that has used a GPU must not fork.
inline c10::Device test_device() {
  if (!tests_on_gpu()) return c10::Device(c10::kCPU);
  // Before libtorch is asked about CUDA: it remembers the answer "none". Tolerances are those of
  // float32.
  static const c10::Device device = [] {
    const ProcessState state = ProcessState::from_environment();
    if (state.gpu_count() == 0) throw std::runtime_error("ACCELERATE_TEST_DEVICE: no GPU");
    at::globalContext().setAllowTF32CuDNN(false);
    // Trainings are compared to the last bit.
    at::globalContext().setDeterministicCuDNN(true);
    return wanted_test_device() == TestDevice::kGpuOverNccl ? state.device()
                                                            : c10::Device(c10::kCUDA, 0);
  }();
  return device;
}

// Seeds the generators that tests draw from. Those on the CPU only ask nothing about GPUs.
inline void seed_tests(uint64_t seed) {
  if (tests_on_gpu()) return at::manual_seed(seed);
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // a handle to it
  std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace accelerate::test
