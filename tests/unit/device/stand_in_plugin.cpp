// Stands for libaccelerate_cuda.so and the driver below it: a machine with GPUs, of which a process
// sees those that CUDA_VISIBLE_DEVICES names. The test sets the version and how many there are.
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "accelerate/export.h"
#include "device/cuda_plugin_version.h"

namespace accelerate::device {
struct CudaPlugin;  // its header needs libtorch
}

namespace {

// Numbers of the machine, in the order of the process, as the driver reads the variable: up to the
// first that is not there.
std::vector<int> visible_gpus(int present) {
  std::vector<int> visible;
  const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
  if (named == nullptr) {
    for (int gpu = 0; gpu < present; ++gpu) visible.push_back(gpu);
    return visible;
  }
  std::istringstream words(named);
  for (std::string word; std::getline(words, word, ',');) {
    const int gpu = std::atoi(word.c_str());
    if (gpu < 0 || gpu >= present) break;
    visible.push_back(gpu);
  }
  return visible;
}

// Of the table only the first two functions are there to be called.
struct Table {
  int (*device_count)();
  std::string (*device_uuid)(int device);
  const void* others[12];
};

}  // namespace

extern "C" {

ACCELERATE_EXPORT accelerate::device::CudaPluginVersion stand_in_version;
ACCELERATE_EXPORT int stand_in_gpus = 2;

ACCELERATE_EXPORT const accelerate::device::CudaPluginVersion* accelerate_cuda_plugin_version() {
  return &stand_in_version;
}

ACCELERATE_EXPORT const accelerate::device::CudaPlugin* accelerate_cuda_plugin() {
  static const Table kTable{
      .device_count = [] { return static_cast<int>(visible_gpus(stand_in_gpus).size()); },
      .device_uuid =
          [](int device) {
            return "GPU-" +
                   std::to_string(visible_gpus(stand_in_gpus).at(static_cast<size_t>(device)));
          },
      .others = {}};
  return reinterpret_cast<const accelerate::device::CudaPlugin*>(&kTable);
}
}
