// Keeps gradients within bounds. For gradients that belong to one process, or are equal on all of
// them: a prepared strategy that shards them does it itself.
#pragma once

#include <ATen/core/Tensor.h>

#include "accelerate/export.h"

namespace accelerate {

struct ClipNormOptions {
  double norm_type = 2.0;  // any order; infinity is the largest absolute value
  // Throw UsageError if the norm is infinite or NaN. Waits for the device.
  bool error_if_nonfinite = false;
};

// The norm of all gradients of `parameters` as if they were one vector; 0 where there are none.
// Parameters without gradient are left out; one that is listed twice, as modules do that share it,
// counts once, here and below. Gradients may be on several devices and of several types. The result
// is on the device of the first gradient, in their widest type and at least float32. Does not wait
// for the device.
ACCELERATE_EXPORT at::Tensor grad_norm(at::TensorList parameters,
                                       const ClipNormOptions& options = {});

// The calls below throw UsageError for a bound that is negative or NaN; nothing is changed then.
// NOLINTBEGIN(readability-identifier-naming): torch's names

// Scales the gradients of `parameters` in place by max_norm / (total_norm + 1e-6) if that is
// less than 1. `total_norm` is a tensor with one element. Does not wait for the device.
ACCELERATE_EXPORT void clip_grads_with_norm_(at::TensorList parameters, double max_norm,
                                             const at::Tensor& total_norm);

// Both: scales the gradients so that their norm is at most `max_norm`, and returns the norm that
// they had. The values are those of torch.nn.utils.clip_grad_norm_ in Python, but for the norm of
// half-precision gradients, which is more exact here.
ACCELERATE_EXPORT at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                                             const ClipNormOptions& options = {});

// Brings every element of every gradient into [-clip_value, clip_value], in place.
ACCELERATE_EXPORT void clip_grad_value_(at::TensorList parameters, double clip_value);

// NOLINTEND(readability-identifier-naming)

}  // namespace accelerate
