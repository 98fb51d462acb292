// Tensors that can be copied by their bytes alone.
#pragma once

#include <ATen/core/Tensor.h>

namespace accelerate::detail {

// Whether the nbytes() at data_ptr() are all there is to a defined tensor: on the CPU, dense, in
// order, nothing to be negated, conjugated or differentiated.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.requires_grad();
}

}  // namespace accelerate::detail
