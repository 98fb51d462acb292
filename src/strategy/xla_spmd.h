// One process, whose program XLA cuts over all devices of the machine.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include "accelerate/strategy.h"
#include "accelerate/strategy_options.h"
#include "device/device_backend.h"

namespace accelerate {

// Batches are cut by rows when they are brought to the device; what follows from that, sums of
// gradients included, XLA finds out itself.
class XlaSpmdStrategy final : public Strategy {
 public:
  XlaSpmdStrategy(c10::Device device, int devices, const XlaSpmdOptions& options)
      : device_(device), devices_(devices), options_(options) {}

  std::string_view name() const override { return devices_ == 1 ? "single" : "xla_spmd"; }

  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override {
    if (options_.shard_parameters) {
      for (const at::Tensor& parameter : module->parameters()) cut_if_large(parameter);
    }
    return std::make_shared<ModelStrategy>();
  }

 private:
  // What is small costs more to bring together than to have.
  void cut_if_large(const at::Tensor& parameter) const {
    constexpr int64_t kLeastNumel = 1024;
    if (parameter.device().type() != device_.type() || parameter.numel() < kLeastNumel) return;
    device::device_backend(device_.type()).cut_over_devices(parameter);
  }

  c10::Device device_;
  int devices_;
  XlaSpmdOptions options_;
};

}  // namespace accelerate
