#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "accelerate/log.h"
#include "compat/moved_handles.h"
#include "compat/xla/client.h"
#include "compat/xla/installation.h"
#include "compat/xla/torch_tpu.h"
#include "device/own_backends.h"
#include "device/xla_generator.h"
#include "device/xla_step_watch.h"

namespace accelerate::device {
namespace {

// Devices that note what is asked of them, and compute it as one compiled program when the step is
// cut, or when the host asks for a value.
class XlaDevices final : public DeviceBackend {
 public:
  XlaDevices() : DeviceBackend(c10::kXLA) {}

  std::string noun() const override { return "XLA device"; }
  int count() const override { return compat::xla_is_open() ? compat::xla_device_count() : 0; }

  void place(torch::nn::Module& module, c10::Device device) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    moved_.move(module, numbered(device));
    watch_.expect_programs();
  }
  void follow(torch::optim::Optimizer& optimizer) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    moved_.follow(optimizer);
    watch_.expect_programs();
  }

  at::Tensor bring(const at::Tensor& tensor, c10::Device device) const override {
    // A pass without gradients is not followed by a step: without a cut the programs of all batches
    // of an evaluation would become one.
    if (passes_without_step_.exchange(false)) compat::cut_xla_graph(numbered(device), false);
    at::Tensor brought = tensor.to(device);
    cut_over_devices(brought);
    return brought;
  }
  std::optional<int> devices_in_program() const override {
    return compat::xla_is_open() ? compat::xla_devices_in_program() : 1;
  }
  void cut_over_devices(const at::Tensor& tensor) const override {
    compat::cut_rows_over_xla_devices(tensor);
  }

  void before_forward() const override {
    if (!at::GradMode::is_enabled()) passes_without_step_ = was_evaluated_ = true;
    const std::lock_guard<std::mutex> lock(mutex_);
    moved_.require_all_followed();
  }

  void synchronize(c10::Device device) const override {
    compat::cut_xla_graph(numbered(device), /*wait=*/true);
  }

  void end_of_step(c10::Device device) const override {
    passes_without_step_ = false;
    const std::lock_guard<std::mutex> lock(mutex_);
    // What an evaluation compiled between two steps is not the training's.
    if (was_evaluated_.exchange(false)) compiled_ = compat::xla_compilations();
    compat::cut_xla_graph(numbered(device), /*wait=*/false);
    const int64_t before = compiled_;
    compiled_ = compat::xla_compilations();
    for (const std::string& line : watch_.after_step(compiled_ - before, [] {
           const compat::XlaCounts counts = compat::xla_counts();
           return XlaStepWatch::Counts{.compilations = counts.compilations,
                                       .on_the_host = counts.on_the_host};
         })) {
      log(LogLevel::kWarning, line);
    }
  }

  at::Generator generator(c10::Device device) const override {
    const c10::Device named = numbered(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = generators_.find(named.index());
    if (found != generators_.end()) return found->second;
    return generators_.emplace(named.index(), make_xla_generator(named)).first->second;
  }

  std::string why_no_graph() const override { return "an XLA device compiles every step as it is"; }
  bool supports_autocast(c10::ScalarType dtype) const override { return dtype == c10::kBFloat16; }

 private:
  mutable std::mutex mutex_;
  mutable compat::MovedHandles moved_;
  mutable XlaStepWatch watch_;
  mutable int64_t compiled_ = 0;  // after the last step
  mutable std::map<c10::DeviceIndex, at::Generator> generators_;
  mutable std::atomic<bool> passes_without_step_ = false;
  mutable std::atomic<bool> was_evaluated_ = false;
};

}  // namespace

std::unique_ptr<const DeviceBackend> make_xla_backend() { return std::make_unique<XlaDevices>(); }

void open_xla_devices() { compat::open_xla(); }

void refuse_tpu_devices() { compat::refuse_torch_tpu(compat::own_xla_search().packages); }

}  // namespace accelerate::device
