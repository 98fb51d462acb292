// Boxes of tensors: see tensor_box.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "accelerate/tensor_box.h"

namespace accelerate {

// All of a tensor.
TensorBox whole_box(at::IntArrayRef shape);
// The elements of `box`; shares the memory of `tensor`.
at::Tensor box_of(at::Tensor tensor, const TensorBox& box);
// What two boxes of one tensor have in common; empty in one dimension where that is nothing.
TensorBox common_box(const TensorBox& one, const TensorBox& other);
// `box`, counted from the beginning of `outer`.
TensorBox within(TensorBox box, const TensorBox& outer);
// Whether the box is one of a tensor of that shape.
bool fits(const TensorBox& box, at::IntArrayRef shape);

// The boxes of one tensor that have elements, each once, in the order of their beginnings.
std::vector<TensorBox> distinct_boxes(std::vector<TensorBox> boxes);
// Whether two of them have an element in common. `boxes` are distinct_boxes().
bool any_overlap(const std::vector<TensorBox>& boxes);

}  // namespace accelerate
