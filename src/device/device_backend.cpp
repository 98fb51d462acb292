#include "device/device_backend.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include "accelerate/errors.h"
#include "compat/c10d.h"

namespace accelerate::device {
namespace {

std::string kind_name(const DeviceBackend& backend) {
  return c10::DeviceTypeName(backend.type(), /*lower_case=*/true);
}

}  // namespace

std::string DeviceBackend::noun() const { return kind_name(*this) + " device"; }

void DeviceBackend::make_current(c10::Device device) const {
  if (c10::impl::hasDeviceGuardImpl(type_)) {
    c10::impl::VirtualGuardImpl(type_).setDevice(numbered(device));
  }
}

c10::Device DeviceBackend::numbered(c10::Device device) const {
  if (device.has_index() || !c10::impl::hasDeviceGuardImpl(type_)) return device;
  return c10::impl::VirtualGuardImpl(type_).getDevice();
}

std::string DeviceBackend::hardware_id(c10::Device /*device*/) const { return {}; }

void DeviceBackend::place(torch::nn::Module& module, c10::Device device) const {
  module.to(device);
}

void DeviceBackend::follow(torch::optim::Optimizer& /*optimizer*/) const {}

at::Tensor DeviceBackend::bring(const at::Tensor& tensor, c10::Device device) const {
  return tensor.to(device);
}

std::optional<int> DeviceBackend::devices_in_program() const { return std::nullopt; }
void DeviceBackend::cut_over_devices(const at::Tensor& /*tensor*/) const {}

void DeviceBackend::synchronize(c10::Device /*device*/) const {}
void DeviceBackend::on_side_stream(const std::function<void()>& body) const { body(); }
bool DeviceBackend::copies_beside_compute() const { return false; }
bool DeviceBackend::pins_memory() const { return false; }
void DeviceBackend::before_forward() const {}
void DeviceBackend::end_of_step(c10::Device /*device*/) const {}

std::optional<DeviceMemory> DeviceBackend::memory(c10::Device /*device*/) const {
  return std::nullopt;
}
void DeviceBackend::reset_peak_memory(c10::Device /*device*/) const {}
void DeviceBackend::empty_cache() const {}

at::Generator DeviceBackend::generator(c10::Device device) const {
  return at::globalContext().defaultGenerator(device);
}

std::vector<at::Generator> DeviceBackend::generators() const {
  std::vector<at::Generator> all;
  const int devices = count();
  for (int index = 0; index < devices; ++index) {
    all.push_back(generator({type_, static_cast<c10::DeviceIndex>(index)}));
  }
  return all;
}

std::string DeviceBackend::why_no_graph() const {
  return "devices of type " + kind_name(*this) + " record no graphs";
}

std::unique_ptr<DeviceGraph> DeviceBackend::make_graph() const {
  throw UsageError({.what = why_no_graph(), .where = "capture"});
}

bool DeviceBackend::records_collectives(std::string_view /*backend*/) const { return false; }

std::unique_ptr<Collectives> DeviceBackend::open_collectives(
    const CollectivesRequest& /*request*/) const {
  return nullptr;
}

bool DeviceBackend::supports_autocast(c10::ScalarType /*dtype*/) const { return false; }
bool DeviceBackend::multiplies_float8(c10::Device /*device*/) const { return false; }
bool DeviceBackend::adds_in_float() const { return false; }

}  // namespace accelerate::device
