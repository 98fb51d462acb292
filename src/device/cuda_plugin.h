// The door to libaccelerate_cuda.so: a table of functions, so that no other room needs CUDA
// headers and a machine without a GPU never loads libtorch_cuda.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "accelerate/errors.h"
#include "device/cuda_plugin_version.h"
#include "device/device_graph.h"
#include "device/exchange_control.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace accelerate::device {

struct CudaKernels;

// Ranks that are about to open NCCL.
struct NcclRequest {
  const c10::intrusive_ptr<c10d::Store>& store;  // where they meet
  int rank = 0;
  int size = 1;
  int device = 0;
  std::chrono::milliseconds timeout{};
  bool eager = false;  // connect at once, not at the first exchange
};

// What they got.
struct OpenedExchanges {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::shared_ptr<ExchangeControl> control;  // of the same; keeps it
};

// What libaccelerate_cuda.so offers. All functions may throw c10::Error.
struct CudaPlugin {
  // Number of GPUs that this process can see.
  int (*device_count)();
  // The name of `device` that no other GPU in the world has, "GPU-" and 32 hexadecimal digits,
  // whatever number this process sees it under.
  std::string (*device_uuid)(int device);
  // Of `device`: 90 for 9.0.
  int (*compute_capability)(int device);
  // Makes `device` current for this thread.
  void (*set_device)(int device);
  // Gives cached device memory back to the driver.
  void (*empty_cache)();
  // Opens NCCL. Collective over the ranks of the request, who wait for each other if it is eager.
  OpenedExchanges (*make_nccl)(const NcclRequest& request);
  // Waits until the current device has done all that was queued.
  void (*synchronize)();
  // Runs `body` on a stream of its own, which waits for the current one and is waited for by it.
  void (*on_side_stream)(const std::function<void()>& body);
  // An empty graph; all graphs share one pool of memory, so replays must not overlap.
  std::unique_ptr<DeviceGraph> (*make_graph)();
  // While on, whatever makes the host wait for the device throws.
  void (*forbid_waiting)(bool on);
  // Bytes on `device` that tensors held at most since the last reset_peak_memory().
  int64_t (*peak_memory)(int device);
  void (*reset_peak_memory)(int device);
  // Null where the library was built without nvcc. See kernels_for().
  const CudaKernels* kernels;
  // The least compute_capability() of devices that the kernels run on.
  int kernel_capability;
};

// kCudaPluginTable goes up with every change of the table; this notices one that changes its size.
static_assert(sizeof(CudaPlugin) == 14 * sizeof(void*), "raise kCudaPluginTable");

// What opening a plug-in gave: its table, or what is wrong.
struct OpenedCudaPlugin {
  const CudaPlugin* plugin = nullptr;
  ErrorInfo problem{};         // `what` is empty where there is none
  bool wrong_version = false;  // the problem is a plug-in of another build
};

// Opens the plug-in `file` and checks that it was built together with this library. Throws nothing
// of its own: the caller decides whether a GPU was asked for. A library that was opened stays open.
OpenedCudaPlugin open_cuda_plugin(const std::filesystem::path& file);

// The number of GPUs that `opened` shows. Throws ConfigError for a plug-in of the wrong version.
int gpu_count(const OpenedCudaPlugin& opened);

// The plug-in, or nullptr where there is no NVIDIA driver or the library was not built. Loads it
// on the first call and keeps it for the life of the process; libtorch's first question about CUDA
// does so too. Logs a warning where a driver is present but the library cannot be used.
const CudaPlugin* cuda_plugin();
// Loads it, for the sake of that warning.
void warn_if_gpus_unusable();

// The number of GPUs that this process can see, for a caller who means to use them. Loads the
// plug-in as cuda_plugin() does, but throws ConfigError if it is of the wrong version: falling back
// to the CPU would only show as hours of slow training.
int gpu_count();

// Whether this process can see a GPU. Loads the plug-in as cuda_plugin() does.
bool has_cuda();

}  // namespace accelerate::device
