// What differs between kinds of devices. The rest of the library asks a backend and names no kind,
// so that a new kind is a new file here.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/process_state.h"
#include "device/collectives.h"
#include "device/device_graph.h"

namespace c10d {
class Store;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace accelerate::device {

struct DeviceMemory {
  int64_t allocated_bytes = 0;  // by tensors, now
  int64_t peak_bytes = 0;       // the most since reset_peak_memory()
};

// Ranks that are about to exchange tensors of one kind of device.
struct CollectivesRequest {
  const c10::intrusive_ptr<c10d::Store>& store;  // where they meet; no other group uses it
  int rank = 0;
  int world_size = 1;
  c10::Device device;  // of this rank
  std::chrono::milliseconds timeout{};
};

// One for each kind of device. Lives as long as the process. Any thread may call it. A device that
// is passed in is of this kind; without a number it is the current one of the thread.
//
// The defaults are right for a device that computes when it is told to, like the CPU: nothing to
// wait for, no statistics, no graphs. A backend overrides what its device does differently.
class DeviceBackend {
 public:
  explicit DeviceBackend(c10::DeviceType type) : type_(type) {}
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  c10::DeviceType type() const { return type_; }

  // --- Devices ---

  // What people call one of them: "GPU", "toy device".
  virtual std::string noun() const;
  // How many this process can see. Throws ConfigError where there are devices which a broken
  // installation keeps from being used: falling back to the CPU would only show as slow training.
  virtual int count() const = 0;
  // Makes `device` ready, and current for this thread. Throws UsageError if libtorch can no longer
  // use it in this process.
  virtual void make_current(c10::Device device) const;
  // `device` with its number.
  virtual c10::Device numbered(c10::Device device) const;
  // A name that no other device in the world has, by which ranks notice that they share one. Empty
  // where ranks may share a device.
  virtual std::string hardware_id(c10::Device device) const;

  // Moves the parameters and buffers of `module` to `device`. Those who hold the same tensors, such
  // as an optimizer, see them there.
  virtual void place(torch::nn::Module& module, c10::Device device) const;
  // Called for each optimizer that is prepared for such a device, after the models were placed: its
  // parameters may be other tensors since then.
  virtual void follow(torch::optim::Optimizer& optimizer) const;
  // A tensor of a batch on `device`.
  virtual at::Tensor bring(const at::Tensor& tensor, c10::Device device) const;
  // How many devices one program of this process drives, which finds out by itself what they have
  // to exchange; nothing where each process drives its own device.
  virtual std::optional<int> devices_in_program() const;
  // Cuts the rows of `tensor` over these devices, where they can be shared out evenly.
  virtual void cut_over_devices(const at::Tensor& tensor) const;

  // --- Work ---

  // Waits until `device` has done all that was queued.
  virtual void synchronize(c10::Device device) const;
  // Runs `body` on a stream of its own, which waits for the current one and is waited for by it.
  virtual void on_side_stream(const std::function<void()>& body) const;
  // Whether copies can run beside kernels. The device guard that is registered with libtorch then
  // has streams and events.
  virtual bool copies_beside_compute() const;
  // Whether host memory can be pinned for copies to and from such a device, which then do not block
  // the host.
  virtual bool pins_memory() const;
  // Called before each forward pass of a prepared model.
  virtual void before_forward() const;
  // Called after each step() of an optimizer that was prepared for such a device, and after each
  // replay of one: where operations are only noted until they are needed, this is the time to run
  // them.
  virtual void end_of_step(c10::Device device) const;

  // --- Memory ---

  // Nothing where the device does not count.
  virtual std::optional<DeviceMemory> memory(c10::Device device) const;
  virtual void reset_peak_memory(c10::Device device) const;
  // Gives cached memory of all devices of this kind back to the system.
  virtual void empty_cache() const;

  // --- Random numbers ---

  // The default generator of `device`: a handle, no copy. Lock its mutex around each use, or use
  // device/generators.h.
  virtual at::Generator generator(c10::Device device) const;
  // Those of all devices that this process can see, by number.
  std::vector<at::Generator> generators() const;

  // --- Recorded steps ---

  // Why steps cannot be recorded and replayed; empty where they can.
  virtual std::string why_no_graph() const;
  // An empty graph on the current device. To be called only where why_no_graph() is empty.
  virtual std::unique_ptr<DeviceGraph> make_graph() const;
  // Whether what ranks exchange through Collectives of this name can be part of a graph.
  virtual bool records_collectives(std::string_view backend) const;

  // --- Ranks ---

  // Opens the device's own way to exchange tensors among ranks. Collective over these ranks. Null
  // where it has none: then tensors cannot be exchanged unless a backend of the host takes them.
  virtual std::unique_ptr<Collectives> open_collectives(const CollectivesRequest& request) const;

  // --- Arithmetic ---

  virtual bool supports_autocast(c10::ScalarType dtype) const;
  // Whether matrices of 8-bit floats can be multiplied.
  virtual bool multiplies_float8(c10::Device device) const;
  // Whether products of half-precision matrices can be added to a float32 one (at::addmm with an
  // out_dtype). Asked once, when the backend is added: see adds_in_float() below.
  virtual bool adds_in_float() const;

 private:
  c10::DeviceType type_;
};

// The backend for a kind of device. Asking for that of the CPU loads nothing. Kinds that no backend
// was added for (meta, say) get one with the defaults and no devices.
const DeviceBackend& device_backend(c10::DeviceType type);

// Opens torch_xla, so that its devices can be used. Throws ConfigError where that is not possible.
void open_xla_devices();
// Throws ConfigError that says why the devices of torch_tpu cannot be used.
[[noreturn]] void refuse_tpu_devices();

// Adds a kind of device for the life of the process; to be called before the first Accelerator.
// Throws UsageError if there is one already; those of CPU, CUDA and XLA are always there.
void add_device_backend(std::unique_ptr<const DeviceBackend> backend);

// The kinds beside the CPU, in the order in which they are preferred: GPUs, XLA devices if they
// were opened, then those that were added. Loads the plug-in for GPUs; throws as count() does.
std::vector<VisibleDevices> visible_devices();

// Whether host memory can be pinned for any kind of device. May load the plug-in for GPUs.
bool memory_can_be_pinned();
// Gives cached memory of all kinds of devices back. May load the plug-in for GPUs.
void empty_all_caches();
// Seeds the generators of the CPU and of all devices that this process can see.
void seed_all_devices(uint64_t seed);

// DeviceBackend::adds_in_float() of this kind. Cheap enough to ask for every product.
bool adds_in_float(c10::DeviceType type);

}  // namespace accelerate::device
