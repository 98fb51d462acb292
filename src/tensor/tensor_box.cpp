#include "accelerate/tensor_box.h"

#include <c10/util/accumulate.h>

#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

// `outer` is where the rows of `shape` lie in the dimensions before it.
void add_boxes(std::vector<int64_t> outer, at::IntArrayRef shape, int64_t begin, int64_t end,
               std::vector<TensorBox>& boxes) {
  if (begin == end) return;
  const auto add = [&](int64_t first, int64_t rows) {
    TensorBox box{.start = outer, .shape = std::vector<int64_t>(outer.size(), 1)};
    for (size_t i = 0; i < shape.size(); ++i) {
      box.start.push_back(i == 0 ? first : 0);
      box.shape.push_back(i == 0 ? rows : shape[i]);
    }
    boxes.push_back(std::move(box));
  };
  if (shape.size() <= 1) return add(begin, end - begin);
  const at::IntArrayRef inner = shape.slice(1);
  const int64_t row = c10::multiply_integers(inner);
  int64_t first = begin / row;
  const int64_t last = end / row;
  const auto part_of_row = [&](int64_t number, int64_t from, int64_t to) {
    std::vector<int64_t> place = outer;
    place.push_back(number);
    add_boxes(std::move(place), inner, from, to, boxes);
  };
  if (first == last) return part_of_row(first, begin % row, end % row);
  if (begin % row != 0) part_of_row(first++, begin % row, row);
  if (first < last) add(first, last - first);
  part_of_row(last, 0, end % row);
}

}  // namespace

int64_t TensorBox::numel() const { return c10::multiply_integers(shape); }

std::vector<TensorBox> boxes_of_range(at::IntArrayRef shape, int64_t begin, int64_t end) {
  if (begin < 0 || begin > end || end > c10::multiply_integers(shape)) {
    throw UsageError({.what = "a tensor of " + std::to_string(c10::multiply_integers(shape)) +
                              " elements has no elements from " + std::to_string(begin) + " to " +
                              std::to_string(end),
                      .where = "boxes_of_range"});
  }
  std::vector<TensorBox> boxes;
  add_boxes({}, shape, begin, end, boxes);
  return boxes;
}

}  // namespace accelerate
