// Datasets of tensors that are already in memory.
//
// A dataset is any type with size() and get(size_t), or get_batch(indices), or all of them; see
// data_loader.h. These read from any number of threads at once; copies are cheap and share the
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace accelerate {

namespace detail {

// Throws UsageError unless all are defined and have equally many rows.
ACCELERATE_EXPORT void check_tensor_rows(c10::ArrayRef<at::Tensor> tensors);
ACCELERATE_EXPORT at::Tensor row_of(const at::Tensor& rows, size_t index);
ACCELERATE_EXPORT at::Tensor rows_of(const at::Tensor& rows, c10::ArrayRef<size_t> indices);

}  // namespace detail

// Sample i is (data[i], target[i]). Holds references to the two tensors, not copies: a sample is a
// view of them, a batch is a copy, made in one operation. On the CPU rows of contiguous tensors are
// copied as bytes.
class ACCELERATE_EXPORT TensorDataset {
 public:
  // Throws UsageError unless both tensors have the same number of rows.
  TensorDataset(at::Tensor data, at::Tensor target);

  size_t size() const;
  // Both throw UsageError for an index that is not below size().
  Sample get(size_t index) const;
  Sample get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  at::Tensor data_;
  at::Tensor target_;
};

// Sample i is the tensor data[i]; otherwise as TensorDataset.
class ACCELERATE_EXPORT UnlabelledTensorDataset {
 public:
  // Throws UsageError unless `data` has at least one dimension.
  explicit UnlabelledTensorDataset(at::Tensor data);

  size_t size() const;
  at::Tensor get(size_t index) const;
  UnlabelledBatch get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  at::Tensor data_;
};

// Sample i is the std::tuple of row i of each of N tensors, a batch the std::tuple of the stacked
// rows; otherwise as TensorDataset. Made by tensor_dataset().
template <size_t N>
class TensorTupleDataset {
 public:
  // Throws UsageError unless all tensors have the same number of rows.
  explicit TensorTupleDataset(std::array<at::Tensor, N> fields) : fields_(std::move(fields)) {
    detail::check_tensor_rows(fields_);
  }

  size_t size() const { return static_cast<size_t>(fields_[0].size(0)); }
  auto get(size_t index) const { return get(index, std::make_index_sequence<N>()); }
  auto get_batch(c10::ArrayRef<size_t> indices) const {
    return get_batch(indices, std::make_index_sequence<N>());
  }

 private:
  template <size_t... Field>
  auto get(size_t index, std::index_sequence<Field...>) const {
    return std::make_tuple(detail::row_of(fields_[Field], index)...);
  }
  template <size_t... Field>
  auto get_batch(c10::ArrayRef<size_t> indices, std::index_sequence<Field...>) const {
    return std::make_tuple(detail::rows_of(fields_[Field], indices)...);
  }

  std::array<at::Tensor, N> fields_;
};

// A dataset of tensors whose rows belong together:
//   auto dataset = accelerate::tensor_dataset(tokens, mask, labels);
//   auto [tokens_0, mask_0, labels_0] = dataset.get(0);
template <std::convertible_to<at::Tensor>... Tensors>
requires(sizeof...(Tensors) > 0) auto tensor_dataset(Tensors&&... tensors) {
  return TensorTupleDataset<sizeof...(Tensors)>({at::Tensor(std::forward<Tensors>(tensors))...});
}

}  // namespace accelerate
