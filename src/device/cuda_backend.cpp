#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/env.h>

#include <mutex>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/environment.h"
#include "base/nccl_variables.h"
#include "base/word_list.h"
#include "compat/c10d.h"
#include "device/cuda_plugin.h"
#include "device/own_backends.h"

namespace accelerate::device {
namespace {

// libtorch asks for its CUDA half once. Where it asked before this library was loaded, as in a
// program that opens it at run time, it has none for the life of the process.
void require_cuda_of_libtorch() {
  if (at::globalContext().hasCUDA()) return;
  throw UsageError({.what = "libtorch was asked about CUDA before this library was loaded, and "
                            "remembers that there is none",
                    .where = "Accelerator",
                    .hint = "load libaccelerate.so first: torch::manual_seed() asks, too"});
}

// libtorch reads these variables whenever NCCL is opened.
void leave_failures_of_nccl_to_us() {
  static std::once_flag said;
  std::call_once(said, [] {
    const std::vector<std::string> foreign = foreign_failure_settings(environment_variable);
    if (foreign.empty()) return;
    log(LogLevel::kWarning,
        "libtorch may end this process when a collective fails, before it is "
        "known which rank is to blame: " +
            joined(foreign) + " is set; unset it to be told");
  });
  for (const auto& [name, value] : failure_variables(environment_variable)) {
    c10::utils::set_env(name.c_str(), value.c_str(), /*overwrite=*/false);
  }
}

c10::DeviceAllocator& cuda_allocator() { return *c10::getDeviceAllocator(c10::kCUDA); }

// All that asks libtorch about CUDA opens the plug-in first: libtorch remembers the answer "none".
class CudaDevices final : public DeviceBackend {
 public:
  CudaDevices() : DeviceBackend(c10::kCUDA) {}

  std::string noun() const override { return "GPU"; }
  int count() const override { return gpu_count(); }

  void make_current(c10::Device device) const override {
    const CudaPlugin* plugin = cuda_plugin();
    require_cuda_of_libtorch();
    plugin->set_device(numbered(device).index());
  }

  c10::Device numbered(c10::Device device) const override {
    if (device.has_index()) return device;
    (void)cuda_plugin();
    at::globalContext().lazyInitDevice(c10::kCUDA);
    return DeviceBackend::numbered(device);
  }

  std::string hardware_id(c10::Device device) const override {
    return cuda_plugin()->device_uuid(numbered(device).index());
  }

  void synchronize(c10::Device device) const override {
    c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(numbered(device).index());
  }
  void on_side_stream(const std::function<void()>& body) const override {
    cuda_plugin()->on_side_stream(body);
  }
  bool copies_beside_compute() const override { return true; }
  bool pins_memory() const override { return has_cuda(); }

  std::optional<DeviceMemory> memory(c10::Device device) const override {
    constexpr auto kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = cuda_allocator().getDeviceStats(ready(device).index());
    return DeviceMemory{.allocated_bytes = stats.allocated_bytes[kAllPools].current,
                        .peak_bytes = stats.allocated_bytes[kAllPools].peak};
  }
  void reset_peak_memory(c10::Device device) const override {
    cuda_allocator().resetPeakStats(ready(device).index());
  }
  void empty_cache() const override {
    if (has_cuda()) cuda_plugin()->empty_cache();
  }

  at::Generator generator(c10::Device device) const override {
    (void)cuda_plugin();
    return DeviceBackend::generator(device);
  }

  std::string why_no_graph() const override { return has_cuda() ? "" : "there is no GPU"; }
  std::unique_ptr<DeviceGraph> make_graph() const override { return cuda_plugin()->make_graph(); }
  bool records_collectives(std::string_view backend) const override { return backend == "nccl"; }

  std::unique_ptr<Collectives> open_collectives(const CollectivesRequest& request) const override {
    leave_failures_of_nccl_to_us();
    const c10::intrusive_ptr<c10d::Store> store =
        c10::make_intrusive<c10d::PrefixStore>("nccl", request.store);
    OpenedExchanges opened =
        cuda_plugin()->make_nccl({.store = store,
                                  .rank = request.rank,
                                  .size = request.world_size,
                                  .device = numbered(request.device).index(),
                                  .timeout = request.timeout,
                                  .eager = environment_flag(kEagerNcclVariable)});
    return collectives_of(std::move(opened.backend), std::move(opened.control));
  }

  bool supports_autocast(c10::ScalarType dtype) const override {
    return dtype == c10::kHalf || dtype == c10::kBFloat16;
  }
  bool multiplies_float8(c10::Device device) const override {
    constexpr int kFirstWithFloat8 = 89;  // compute capability 8.9
    return has_cuda() &&
           cuda_plugin()->compute_capability(numbered(device).index()) >= kFirstWithFloat8;
  }
  bool adds_in_float() const override { return true; }

 private:
  // With its number, after the allocator was set up.
  c10::Device ready(c10::Device device) const {
    (void)cuda_plugin();
    at::globalContext().lazyInitDevice(c10::kCUDA);
    return numbered(device);
  }
};

}  // namespace

std::unique_ptr<const DeviceBackend> make_cuda_backend() { return std::make_unique<CudaDevices>(); }

}  // namespace accelerate::device
