// Parts of tensors that ranks hold for each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// The elements from `start` on, `shape` in number, in each dimension of a tensor. A scalar is the
// box without dimensions.
struct ACCELERATE_EXPORT TensorBox {
  std::vector<int64_t> start{};
  std::vector<int64_t> shape{};

  int64_t numel() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// The boxes that hold the elements from `begin` to `end` (not included) of a tensor of this shape,
// counted in row-major order: for what cuts tensors as if they were one vector. Their elements
// follow each other in that order; at most 2 n - 1 boxes for n dimensions. Throws UsageError for a
// range that the tensor does not have.
ACCELERATE_EXPORT std::vector<TensorBox> boxes_of_range(at::IntArrayRef shape, int64_t begin,
                                                        int64_t end);

}  // namespace accelerate
