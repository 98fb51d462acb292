// A value that is not shared. Internal: users do not call it.
#pragma once

#include <ATen/core/Tensor.h>

#include "accelerate/nested.h"

namespace accelerate::detail {

// A copy of `value` with tensors of its own: the loop may change those that it is given.
template <class T>
T kept(const T& value) {
  if constexpr (Nested<T>) {
    return map_tensors(
        value, [](const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; });
  } else {
    return value;
  }
}

}  // namespace accelerate::detail
