#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "accelerate/detail/placing_feed.h"
#include "device/device_backend.h"

namespace accelerate::detail {

bool has_copy_stream(c10::Device device) {
  return device::device_backend(device.type()).copies_beside_compute();
}

at::Tensor place(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  return device::device_backend(device.type()).bring(tensor, device);
}

class DeviceCopies::Mark {
 public:
  explicit Mark(c10::Stream stream) : event_(stream.device_type()) { event_.record(stream); }
  void block(c10::Stream stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

struct DeviceCopies::Impl {
  explicit Impl(c10::Device on)
      : device(on),
        guard(on.type()),
        // Of high priority: a copy that waits behind kernels would be late.
        stream(guard.getStreamFromGlobalPool(on, /*isHighPriority=*/true)) {}

  c10::Device device;
  c10::impl::VirtualGuardImpl guard;
  c10::Stream stream;
};

DeviceCopies::DeviceCopies(c10::Device device) : impl_(std::make_unique<Impl>(device)) {}
DeviceCopies::~DeviceCopies() = default;
DeviceCopies::DeviceCopies(DeviceCopies&&) noexcept = default;
DeviceCopies& DeviceCopies::operator=(DeviceCopies&&) noexcept = default;

at::Tensor DeviceCopies::copy(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == impl_->device) return tensor;
  const c10::StreamGuard on_copies(impl_->stream);
  return tensor.to(impl_->device, /*non_blocking=*/true);
}

std::shared_ptr<DeviceCopies::Mark> DeviceCopies::mark() {
  return std::make_shared<Mark>(impl_->stream);
}

void DeviceCopies::await(const Mark& mark) { mark.block(impl_->guard.getStream(impl_->device)); }

void DeviceCopies::hand_over(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() != impl_->device) return;
  tensor.record_stream(impl_->guard.getStream(impl_->device));
}

}  // namespace accelerate::detail
