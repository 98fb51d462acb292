#include "device/host_copy.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/device_backend.h"

namespace accelerate::device {

HostCopy::HostCopy(const at::Tensor& scalar) {
  if (scalar.is_cpu()) {
    pinned_ = scalar.clone();
    return;
  }
  if (!device_backend(scalar.device().type()).pins_memory()) {
    pinned_ = scalar.to(at::kCPU);
    return;
  }
  pinned_ = at::empty({}, at::TensorOptions(at::kFloat).pinned_memory(true));
  pinned_.copy_(scalar, /*non_blocking=*/true);
  made_ = std::make_unique<c10::Event>(scalar.device().type());
  made_->record(c10::impl::VirtualGuardImpl(scalar.device().type()).getStream(scalar.device()));
}

float HostCopy::value() const {
  if (made_) made_->synchronize();
  return *pinned_.data_ptr<float>();
}

}  // namespace accelerate::device
