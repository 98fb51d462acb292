// Tensors that are logged: read when their device has computed them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/tracking.h"
#include "tracking/record_queue.h"

namespace accelerate {

// The number of a tensor on the host, nothing for one of a device. Throws UsageError for a tensor
// that does not hold one number.
std::optional<double> number_on_host(const at::Tensor& tensor, std::string_view name);

// The numbers of tensors of devices.
std::shared_ptr<const tracking::PendingNumbers> numbers_of(const std::vector<at::Tensor>& tensors);

// An attachment of tensors, and how much room it takes.
struct TrackedTensors {
  std::shared_ptr<const tracking::PendingAttachment> attachment;
  size_t bytes = 0;
};
// Throw UsageError for what is not images, or not numbers.
TrackedTensors images_of(std::initializer_list<LoggedImages> images, ImageLayout layout);
TrackedTensors histogram_of_tensor(std::string_view name, const at::Tensor& values);

}  // namespace accelerate
