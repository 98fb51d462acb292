#include "compat/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "accelerate/log.h"
#include "compat/cuda_kernels.h"

namespace accelerate::compat {
namespace {

bool driver_is_present() {
  return std::filesystem::exists("/proc/driver/nvidia/version") ||
         std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

// The folder of the library that holds this very function.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&cuda_plugin), &info) == 0) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

const CudaPlugin* load() {
  if (!driver_is_present()) return nullptr;
  const auto path = own_folder() / "libaccelerate_cuda.so";
  // Global: libtorch_cuda registers kernels that libtorch_cpu and later libraries look up.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    log(LogLevel::kWarning,
        std::string("an NVIDIA driver is present, but GPUs are not used: ") + dlerror());
    return nullptr;
  }
  auto* entry = reinterpret_cast<const CudaPlugin* (*)()>(dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) {
    log(LogLevel::kWarning, path.string() + " has no entry " + kCudaPluginEntry);
    return nullptr;
  }
  return entry();
}

}  // namespace

const CudaPlugin* cuda_plugin() {
  static const CudaPlugin* const plugin = load();
  return plugin;
}

const CudaKernels* kernels_for(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  const CudaPlugin* plugin = cuda_plugin();
  if (plugin == nullptr || plugin->kernels == nullptr) return nullptr;
  const bool new_enough =
      plugin->compute_capability(tensor.get_device()) >= plugin->kernel_capability;
  return new_enough ? plugin->kernels : nullptr;
}

bool has_cuda() {
  const CudaPlugin* plugin = cuda_plugin();
  return plugin != nullptr && plugin->device_count() > 0;
}

}  // namespace accelerate::compat
