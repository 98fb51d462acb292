// Tensors of a device on their way to the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <vector>

namespace accelerate::device {

// Copies of tensors on the host, as they are when the device comes to this point of its current
// stream. Making one waits for nothing where host memory can be pinned for the device; for others,
// and for tensors on the host, the copies are there at once.
class TensorCopies {
 public:
  explicit TensorCopies(const std::vector<at::Tensor>& tensors);

  // Whether all copies are made. Any thread.
  bool ready() const;
  // In the order in which the tensors were given, contiguous. Once ready().
  const std::vector<at::Tensor>& tensors() const { return copies_; }

 private:
  std::vector<at::Tensor> copies_;
  std::vector<std::unique_ptr<c10::Event>> made_;  // one for each device
};

}  // namespace accelerate::device
