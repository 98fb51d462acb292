#include "accelerate/dataset.h"

#include <ATen/ATen.h>

#include <sstream>
#include <utility>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/errors.h"
#include "data/row_copy.h"

namespace accelerate {
namespace detail {

void check_tensor_rows(c10::ArrayRef<at::Tensor> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].dim() == 0) {
      throw UsageError({.what = "tensor " + std::to_string(i) + " of the dataset " +
                                (tensors[i].defined() ? "has no dimension" : "is undefined"),
                        .hint = "give tensors whose first dimension counts the samples"});
    }
    if (tensors[i].size(0) == tensors[0].size(0)) continue;
    std::ostringstream what;
    what << "the tensors of a dataset differ in their number of rows: tensor 0 has "
         << tensors[0].size(0) << ", tensor " << i << " has " << tensors[i].size(0);
    throw UsageError({.what = what.str()});
  }
}

at::Tensor row_of(const at::Tensor& rows, size_t index) {
  check_index(index, static_cast<size_t>(rows.size(0)));
  return rows.select(0, static_cast<int64_t>(index));
}

at::Tensor rows_of(const at::Tensor& rows, c10::ArrayRef<size_t> indices) {
  return gather_rows(rows, indices);
}

}  // namespace detail

TensorDataset::TensorDataset(at::Tensor data, at::Tensor target)
    : data_(std::move(data)), target_(std::move(target)) {
  if (!data_.defined() || !target_.defined() || data_.dim() == 0 || target_.dim() == 0) {
    throw UsageError({.what = "TensorDataset needs two tensors with at least one dimension"});
  }
  if (data_.size(0) != target_.size(0)) {
    std::ostringstream what;
    what << "TensorDataset: data has " << data_.size(0) << " rows, target has " << target_.size(0);
    throw UsageError({.what = what.str()});
  }
}

size_t TensorDataset::size() const { return static_cast<size_t>(data_.size(0)); }

Sample TensorDataset::get(size_t index) const {
  return {.data = detail::row_of(data_, index), .target = detail::row_of(target_, index)};
}

Sample TensorDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  return {.data = gather_rows(data_, indices), .target = gather_rows(target_, indices)};
}

UnlabelledTensorDataset::UnlabelledTensorDataset(at::Tensor data) : data_(std::move(data)) {
  detail::check_tensor_rows(data_);
}

size_t UnlabelledTensorDataset::size() const { return static_cast<size_t>(data_.size(0)); }

at::Tensor UnlabelledTensorDataset::get(size_t index) const { return detail::row_of(data_, index); }

UnlabelledBatch UnlabelledTensorDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  return {.data = gather_rows(data_, indices)};
}

}  // namespace accelerate
