#include "device/cuda_plugin.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "accelerate/log.h"
#include "base/library_version.h"
#include "device/cuda_kernels.h"

namespace accelerate::device {
namespace {

bool driver_is_present() {
  return std::filesystem::exists("/proc/driver/nvidia/version") ||
         std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

// Beside the library that holds this very function. A program that holds it itself, as some tests
// do, has it in the folder lib beside its own.
std::filesystem::path plugin_file() {
  constexpr const char* kName = "libaccelerate_cuda.so";
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&plugin_file), &info) == 0) return kName;
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();
  std::filesystem::path beside = folder / kName;
  std::filesystem::path in_lib = folder / ".." / "lib" / kName;
  return !std::filesystem::exists(beside) && std::filesystem::exists(in_lib) ? in_lib : beside;
}

std::string build_text(const CudaPluginVersion& version) {
  return "Accelerate " + std::string(version.accelerate) + " for torch " + version.torch +
         " (table " + std::to_string(version.table) + ")";
}

OpenedCudaPlugin wrong_version(const std::filesystem::path& file, const std::string& version) {
  const CudaPluginVersion own{kCudaPluginTable, library_version(), TORCH_VERSION};
  return {.problem = {.what = file.string() + " belongs to " + version + ", this library to " +
                              build_text(own),
                      .hint = "install both from one build, or set ACCELERATE_USE_CPU=true to "
                              "train without GPUs"},
          .wrong_version = true};
}

const OpenedCudaPlugin& opened_plugin() {
  static const OpenedCudaPlugin opened =
      driver_is_present() ? open_cuda_plugin(plugin_file()) : OpenedCudaPlugin{};
  return opened;
}

constexpr const char* kHooksName = "CUDAHooks";

// Called by libtorch at the first question about CUDA, which torch::manual_seed() is, too. libtorch
// remembers the answer for the life of the process; see getCUDAHooks().
std::unique_ptr<at::CUDAHooksInterface> load_cuda_hooks(at::CUDAHooksArgs args) {
  static std::atomic<bool> was_asked = false;
  if (was_asked.exchange(true) || opened_plugin().plugin == nullptr) return nullptr;
  // libtorch_cuda, which the plug-in has loaded, has registered its own function in this one's
  // place.
  return at::CUDAHooksRegistry()->Create(kHooksName, args);
}

// A program that links libtorch_cuda itself has the right answer already, or gets it: libtorch_cuda
// registers with the higher priority.
[[maybe_unused]] const bool kHooksAreRegistered = [] {
  auto* registry = at::CUDAHooksRegistry();
  if (!registry->Has(kHooksName)) {
    registry->Register(kHooksName, load_cuda_hooks, c10::REGISTRY_FALLBACK);
  }
  return true;
}();

}  // namespace

OpenedCudaPlugin open_cuda_plugin(const std::filesystem::path& file) {
  // Global: libtorch_cuda registers kernels that libtorch_cpu and later libraries look up. That is
  // also why a plug-in that turns out to be unusable is not closed again.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return {.problem = {.what = dlerror()}};
  auto* version_of =
      reinterpret_cast<const CudaPluginVersion* (*)()>(dlsym(library, kCudaPluginVersionEntry));
  if (version_of == nullptr) return wrong_version(file, "an older build without a version");
  const CudaPluginVersion& version = *version_of();
  if (version.table != kCudaPluginTable ||
      version.accelerate != std::string_view(library_version()) ||
      version.torch != std::string_view(TORCH_VERSION)) {
    return wrong_version(file, build_text(version));
  }
  auto* entry = reinterpret_cast<const CudaPlugin* (*)()>(dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) {
    return {.problem = {.what = file.string() + " has no entry " + kCudaPluginEntry}};
  }
  return {.plugin = entry()};
}

int gpu_count(const OpenedCudaPlugin& opened) {
  if (opened.wrong_version) throw ConfigError(opened.problem);
  return opened.plugin == nullptr ? 0 : opened.plugin->device_count();
}

const CudaPlugin* cuda_plugin() {
  static const CudaPlugin* const plugin = [] {
    const OpenedCudaPlugin& opened = opened_plugin();
    const ErrorInfo& problem = opened.problem;
    if (!problem.what.empty()) {
      log(LogLevel::kWarning, "an NVIDIA driver is present, but GPUs are not used: " +
                                  problem.what + (problem.hint.empty() ? "" : "; ") + problem.hint);
    }
    return opened.plugin;
  }();
  return plugin;
}

void warn_if_gpus_unusable() { (void)cuda_plugin(); }

int gpu_count() {
  const int count = gpu_count(opened_plugin());
  warn_if_gpus_unusable();
  return count;
}

const CudaKernels* kernels_for(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  const CudaPlugin* plugin = cuda_plugin();
  if (plugin == nullptr || plugin->kernels == nullptr) return nullptr;
  const bool new_enough =
      plugin->compute_capability(tensor.get_device()) >= plugin->kernel_capability;
  return new_enough ? plugin->kernels : nullptr;
}

bool prefers_cudnn_attention(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return false;
  constexpr int kHopper = 90;
  const CudaPlugin* plugin = cuda_plugin();
  return plugin != nullptr && plugin->compute_capability(tensor.get_device()) >= kHopper;
}

bool has_cuda() {
  const CudaPlugin* plugin = cuda_plugin();
  return plugin != nullptr && plugin->device_count() > 0;
}

}  // namespace accelerate::device
