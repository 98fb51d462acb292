#include "device/own_backends.h"

namespace accelerate::device {
namespace {

class CpuDevices final : public DeviceBackend {
 public:
  CpuDevices() : DeviceBackend(c10::kCPU) {}

  int count() const override { return 1; }
  void make_current(c10::Device /*device*/) const override {}
  // Python's library, and files, write "cpu" without a number.
  c10::Device numbered(c10::Device device) const override { return device; }
  std::string why_no_graph() const override { return "there is no GPU"; }
  bool supports_autocast(c10::ScalarType dtype) const override {
    return dtype == c10::kHalf || dtype == c10::kBFloat16;
  }
};

}  // namespace

std::unique_ptr<const DeviceBackend> make_cpu_backend() { return std::make_unique<CpuDevices>(); }

}  // namespace accelerate::device
