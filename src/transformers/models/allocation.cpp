#include "transformers/models/allocation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

thread_local AllocationGuard* innermost = nullptr;

// 2^44: more than any machine has, and the bytes of it still fit into 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 44;

// Or kMostElements, if there are more.
int64_t elements_of(at::IntArrayRef shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1) return 0;
    if (elements > kMostElements / size) return kMostElements;
    elements *= size;
  }
  return elements;
}

}  // namespace

at::Tensor new_parameter(at::IntArrayRef shape) {
  if (innermost != nullptr) return innermost->make(shape);
  AllocationGuard plain({});
  return plain.make(shape);
}

AllocationGuard::AllocationGuard(AllocationPlan plan)
    : plan_(std::move(plan)), outer_(std::exchange(innermost, this)) {}

AllocationGuard::~AllocationGuard() { innermost = outer_; }

at::Tensor AllocationGuard::make(at::IntArrayRef shape) {
  const int64_t most = std::min(plan_.most_elements, kMostElements - 1);
  const int64_t elements = elements_of(shape);
  if (elements > most - elements_ || tensors_ >= plan_.most_tensors) {
    const bool too_many = tensors_ >= plan_.most_tensors;
    const std::string& reason = too_many ? plan_.tensors_reason : plan_.elements_reason;
    throw DataError({.what = "the configuration asks for a model of more than " +
                             (too_many ? std::to_string(plan_.most_tensors) + " tensors"
                                       : std::to_string(most) + " parameters") +
                             (reason.empty() ? "" : ", " + reason),
                     .where = plan_.where,
                     .hint = "check the sizes and numbers of layers in it"});
  }
  elements_ += elements;
  ++tensors_;
  // Inside of init_empty_weights() what names the CPU has memory all the same.
  const at::TensorOptions options = at::TensorOptions().dtype(plan_.dtype);
  return at::empty(shape, plan_.device.is_cpu() ? options : options.device(plan_.device));
}

}  // namespace accelerate::transformers
