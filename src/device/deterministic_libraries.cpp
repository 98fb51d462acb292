#include "device/deterministic_libraries.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/env.h>

#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "device/device_backend.h"

namespace accelerate::device {
namespace {

constexpr const char* kCublasWorkspace = "CUBLAS_WORKSPACE_CONFIG";

// cuBLAS shares its workspace among streams unless it has one of a fixed size for each.
void fix_cublas(c10::Device device) {
  const std::string value = environment_variable(kCublasWorkspace).value_or("");
  if (value == ":4096:8" || value == ":16:8") return;
  if (!value.empty()) {
    throw ConfigError({.what = "\"" + value +
                               "\" lets cuBLAS give other results in every run, and "
                               "AcceleratorOptions::deterministic is set",
                       .where = std::string("environment variable ") + kCublasWorkspace,
                       .hint = "unset it, or set it to :4096:8 or :16:8"});
  }
  const auto index = device_backend(device.type()).numbered(device).index();
  if (at::detail::getCUDAHooks().hasPrimaryContext(index)) {
    throw UsageError(
        {.what = "the GPU was used before this accelerator was made, so cuBLAS may "
                 "have been opened without a deterministic workspace",
         .where = "AcceleratorOptions::deterministic",
         .hint = std::string("make the accelerator first, or start the program with ") +
                 kCublasWorkspace + "=:4096:8"});
  }
  c10::utils::set_env(kCublasWorkspace, ":4096:8", /*overwrite=*/true);
}

}  // namespace

void use_deterministic_libraries(c10::Device device) {
  if (!device.is_cuda()) return;
  fix_cublas(device);
  // Switches that add up on the way do so in the order of arrival. What else NCCL chooses follows
  // from sizes, ranks and topology, which are the same in every run.
  c10::utils::set_env("NCCL_NVLS_ENABLE", "0", /*overwrite=*/false);
  c10::utils::set_env("NCCL_COLLNET_ENABLE", "0", /*overwrite=*/false);
}

}  // namespace accelerate::device
