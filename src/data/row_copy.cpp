#include "data/row_copy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "accelerate/detail/collated.h"
#include "accelerate/detail/dataset_access.h"
#include "data/plain_tensor.h"

namespace accelerate {
namespace {

// One move instruction a row instead of a call of memcpy: labels and other scalars.
template <class Element>
void copy_elements(const std::byte* base, c10::ArrayRef<size_t> indices, std::byte* out) {
  for (const size_t index : indices) {
    Element element;
    std::memcpy(&element, base + index * sizeof(Element), sizeof(Element));
    std::memcpy(out, &element, sizeof(Element));
    out += sizeof(Element);
  }
}

// Whether the rows are plain bytes that memcpy may copy.
bool is_plain_memory(const at::Tensor& rows) {
  return detail::is_plain(rows) && !rows.requires_grad();
}

}  // namespace

void check_indices(c10::ArrayRef<size_t> indices, size_t size) {
  for (const size_t index : indices) detail::check_index(index, size);
}

void copy_rows(const std::byte* base, size_t row_bytes, c10::ArrayRef<size_t> indices,
               std::byte* out) {
  switch (row_bytes) {
    case 0:
      return;  // rows without elements may have no memory
    case 1:
      return copy_elements<uint8_t>(base, indices, out);
    case 4:
      return copy_elements<uint32_t>(base, indices, out);
    case 8:
      return copy_elements<uint64_t>(base, indices, out);
    default:
      break;
  }
  for (const size_t index : indices) {
    std::memcpy(out, base + index * row_bytes, row_bytes);
    out += row_bytes;
  }
}

at::Tensor empty_rows(size_t count, at::IntArrayRef row_shape, at::ScalarType type) {
  std::vector<int64_t> shape{static_cast<int64_t>(count)};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  return detail::empty_batch(shape, type);
}

at::Tensor gather_rows(const at::Tensor& rows, c10::ArrayRef<size_t> indices) {
  check_indices(indices, static_cast<size_t>(rows.size(0)));
  if (!is_plain_memory(rows)) {
    at::Tensor order = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), order.data_ptr<int64_t>());
    return rows.index_select(0, order.to(rows.device()));
  }
  at::Tensor gathered = empty_rows(indices.size(), rows.sizes().slice(1), rows.scalar_type());
  if (gathered.numel() == 0) return gathered;
  copy_rows(static_cast<const std::byte*>(rows.data_ptr()), rows.nbytes() / rows.size(0), indices,
            static_cast<std::byte*>(gathered.data_ptr()));
  return gathered;
}

}  // namespace accelerate
