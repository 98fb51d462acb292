#include "accelerate/init_on_device.h"

#include "compat/born_on_device.h"

namespace accelerate {

class InitOnDevice::Scope {
 public:
  explicit Scope(c10::Device device) : births_(device) {}

 private:
  compat::BirthScope births_;
};

InitOnDevice::InitOnDevice(c10::Device device) : scope_(std::make_unique<Scope>(device)) {}
InitOnDevice::~InitOnDevice() = default;

}  // namespace accelerate
