#include "monitor/devices/gpu_sampler.h"

#include <dlfcn.h>

#include <array>
#include <memory>

namespace accelerate::monitor {
namespace {

// The few declarations of nvml.h that are used here; their binary form is a promise of the driver.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlUtilization {
  unsigned gpu;
  unsigned memory;
};
constexpr int kNvmlSuccess = 0;
constexpr unsigned kNvmlTemperatureGpu = 0;

}  // namespace

struct GpuSampler::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;

  template <class Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return function != nullptr;
  }
  bool find_all() {
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(count, "nvmlDeviceGetCount_v2") &&
           find(by_index, "nvmlDeviceGetHandleByIndex_v2") && find(name, "nvmlDeviceGetName") &&
           find(memory, "nvmlDeviceGetMemoryInfo") &&
           find(utilization, "nvmlDeviceGetUtilizationRates") &&
           find(power, "nvmlDeviceGetPowerUsage") && find(temperature, "nvmlDeviceGetTemperature");
  }
};

GpuSampler::GpuSampler() {
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  auto library = std::make_unique<Library>();
  library->handle = handle;
  if (library->find_all() && library->init() == kNvmlSuccess) {
    library_ = library.release();
  } else {
    dlclose(handle);
  }
}

GpuSampler::~GpuSampler() {
  if (library_ == nullptr) return;
  library_->shutdown();
  dlclose(library_->handle);
  delete library_;
}

std::vector<GpuUsage> GpuSampler::sample() const {
  std::vector<GpuUsage> gpus;
  unsigned count = 0;
  if (library_ == nullptr || library_->count(&count) != kNvmlSuccess) return gpus;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    if (library_->by_index(index, &device) != kNvmlSuccess) continue;
    GpuUsage gpu{.index = index};
    std::array<char, 96> name{};
    NvmlMemory memory{};
    NvmlUtilization utilization{};
    unsigned milliwatts = 0;
    unsigned celsius = 0;
    if (library_->name(device, name.data(), name.size()) == kNvmlSuccess) gpu.name = name.data();
    if (library_->memory(device, &memory) == kNvmlSuccess) {
      gpu.memory_bytes = memory.total;
      gpu.used_bytes = memory.used;
    }
    if (library_->utilization(device, &utilization) == kNvmlSuccess) {
      gpu.busy = utilization.gpu / 100.0;
    }
    if (library_->power(device, &milliwatts) == kNvmlSuccess) gpu.watts = milliwatts / 1000.0;
    if (library_->temperature(device, kNvmlTemperatureGpu, &celsius) == kNvmlSuccess) {
      gpu.celsius = celsius;
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace accelerate::monitor
