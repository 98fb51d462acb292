// Gathering rows by index: what get_batch() of most datasets comes down to.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>

namespace accelerate {

// Throws UsageError unless every index is below `size`.
void check_indices(c10::ArrayRef<size_t> indices, size_t size);

// Copies row indices[k] of `base`, whose rows lie `row_bytes` apart and have that many bytes, to
// row k of `out`. The indices must have been checked.
void copy_rows(const std::byte* base, size_t row_bytes, c10::ArrayRef<size_t> indices,
               std::byte* out);

// Asks the processor for the bytes of a row that is about to be read: rows in random order are out
// of reach of its own foresight.
inline void prefetch_row(const std::byte* row, size_t row_bytes) {
  constexpr size_t kCacheLine = 64;
  constexpr size_t kMost = 4096;
  for (size_t i = 0; i < std::min(row_bytes, kMost); i += kCacheLine) __builtin_prefetch(row + i);
}

// A new CPU tensor of `count` rows of the given shape, uninitialised.
at::Tensor empty_rows(size_t count, at::IntArrayRef row_shape, at::ScalarType type);

// The given rows of `rows` as one new tensor on the same device. Differentiable where `rows` is.
// Throws UsageError for an index that is not a row.
at::Tensor gather_rows(const at::Tensor& rows, c10::ArrayRef<size_t> indices);

}  // namespace accelerate
