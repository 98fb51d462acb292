// Where the parameters of a model come from while it is made.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <string>

namespace accelerate::transformers {

// A parameter without values. Every layer and model makes its parameters by this call: they come to
// be with the type and on the device that they are wanted on, so that loading a model never holds
// it twice. Buffers are made on the CPU.
at::Tensor new_parameter(at::IntArrayRef shape);

struct AllocationPlan {
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  // What a model may have at most. A configuration that asks for more is refused before memory is
  // taken.
  int64_t most_elements = std::numeric_limits<int64_t>::max();
  int64_t most_tensors = std::numeric_limits<int64_t>::max();
  // For the message: the file of the configuration, and what the limits come from.
  std::string where{};
  std::string elements_reason{};
  std::string tensors_reason{};
};

// While it lives, new_parameter() in this thread goes by the plan; beyond its limits it throws
// DataError. May be nested: the innermost counts.
class AllocationGuard {
 public:
  explicit AllocationGuard(AllocationPlan plan);
  ~AllocationGuard();
  AllocationGuard(const AllocationGuard&) = delete;
  AllocationGuard& operator=(const AllocationGuard&) = delete;

 private:
  friend at::Tensor new_parameter(at::IntArrayRef shape);
  at::Tensor make(at::IntArrayRef shape);

  AllocationPlan plan_;
  int64_t elements_ = 0;
  int64_t tensors_ = 0;
  AllocationGuard* outer_;
};

}  // namespace accelerate::transformers
