#include "tensor/tensor_boxes.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace accelerate {

TensorBox whole_box(at::IntArrayRef shape) {
  return {.start = std::vector<int64_t>(shape.size(), 0), .shape = shape.vec()};
}

at::Tensor box_of(at::Tensor tensor, const TensorBox& box) {
  for (size_t i = 0; i < box.shape.size(); ++i) {
    tensor = tensor.narrow(static_cast<int64_t>(i), box.start[i], box.shape[i]);
  }
  return tensor;
}

TensorBox common_box(const TensorBox& one, const TensorBox& other) {
  TensorBox common;
  for (size_t i = 0; i < one.shape.size(); ++i) {
    const int64_t start = std::max(one.start[i], other.start[i]);
    const int64_t end = std::min(one.start[i] + one.shape[i], other.start[i] + other.shape[i]);
    common.start.push_back(start);
    common.shape.push_back(std::max<int64_t>(end - start, 0));
  }
  return common;
}

TensorBox within(TensorBox box, const TensorBox& outer) {
  for (size_t i = 0; i < box.start.size(); ++i) box.start[i] -= outer.start[i];
  return box;
}

bool fits(const TensorBox& box, at::IntArrayRef shape) {
  if (box.start.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (box.start[i] < 0 || box.shape[i] < 0) return false;
    if (box.start[i] > shape[i] - box.shape[i]) return false;
  }
  return true;
}

std::vector<TensorBox> distinct_boxes(std::vector<TensorBox> boxes) {
  std::erase_if(boxes, [](const TensorBox& box) { return box.numel() == 0; });
  std::ranges::sort(boxes, [](const TensorBox& one, const TensorBox& other) {
    return std::tie(one.start, one.shape) < std::tie(other.start, other.shape);
  });
  const auto repeated = std::ranges::unique(boxes);
  boxes.erase(repeated.begin(), repeated.end());
  return boxes;
}

bool any_overlap(const std::vector<TensorBox>& boxes) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = i + 1; j < boxes.size(); ++j) {
      // They begin in this order: further ones are further away.
      if (!boxes[i].start.empty() && boxes[j].start[0] >= boxes[i].start[0] + boxes[i].shape[0]) {
        break;
      }
      if (common_box(boxes[i], boxes[j]).numel() > 0) return true;
    }
  }
  return false;
}

}  // namespace accelerate
