// Parts of tensors that ranks hold for each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
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

// What this rank holds of a tensor that is kept in pieces.
struct TensorLayout {
  // Of the whole tensor.
  std::vector<int64_t> shape{};
  // The parts that this rank holds: their elements follow each other, box by box, each in row-major
  // order. None where it holds nothing.
  std::vector<TensorBox> boxes{};

  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// The tensors of a model that are kept in pieces, by the names of get_state_dict(). All others are
// whole, and the same on all ranks.
using ModelLayout = std::map<std::string, TensorLayout>;

// The boxes that hold the elements from `begin` to `end` (not included) of a tensor of this shape,
// counted in row-major order: for what cuts tensors as if they were one vector. Their elements
// follow each other in that order; at most 2 n - 1 boxes for n dimensions. Throws UsageError for a
// range that the tensor does not have.
ACCELERATE_EXPORT std::vector<TensorBox> boxes_of_range(at::IntArrayRef shape, int64_t begin,
                                                        int64_t end);

}  // namespace accelerate
