// Where the tests of training and of collectives put their tensors: on the CPU, or, where
// ACCELERATE_TEST_DEVICE is "cuda", on the first GPU, which all ranks then share through Gloo.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "accelerate/process_state.h"

namespace accelerate::test {

inline bool tests_on_gpu() {
  const char* wanted = std::getenv("ACCELERATE_TEST_DEVICE");
  if (wanted == nullptr || std::string(wanted) == "cpu") return false;
  if (std::string(wanted) == "cuda") return true;
  throw std::invalid_argument("ACCELERATE_TEST_DEVICE must be cpu or cuda, not " +
                              std::string(wanted));
}

// For ranks, not for the program that starts them: a process that has used a GPU must not fork.
inline c10::Device test_device() {
  if (!tests_on_gpu()) return c10::Device(c10::kCPU);
  // Before libtorch is asked about CUDA: it remembers the answer "none". Tolerances are those of
  // float32.
  static const bool ready = [] {
    if (ProcessState::from_environment().gpu_count() == 0) {
      throw std::runtime_error("ACCELERATE_TEST_DEVICE is cuda: no GPU");
    }
    at::globalContext().setAllowTF32CuDNN(false);
    return true;
  }();
  (void)ready;
  return c10::Device(c10::kCUDA, 0);
}

// Seeds the generators that tests draw from. Those on the CPU only ask nothing about GPUs.
inline void seed_tests(uint64_t seed) {
  if (tests_on_gpu()) return at::manual_seed(seed);
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // a handle to it
  std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace accelerate::test
