// One number of a device on its way to the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>

namespace accelerate::device {

// Copies a float32 scalar to the host when the device comes to it. Making one waits for nothing,
// where host memory can be pinned for the device.
class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& scalar);
  // Waits until the copy is made, and for nothing that was queued after it.
  float value() const;

 private:
  at::Tensor pinned_;
  std::unique_ptr<c10::Event> made_;  // null for what was on the host already
};

}  // namespace accelerate::device
