#include "accelerate/dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate {

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
  const auto row = static_cast<int64_t>(index);
  return {.data = data_.select(0, row), .target = target_.select(0, row)};
}

Sample TensorDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  at::Tensor rows = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  std::copy(indices.begin(), indices.end(), rows.data_ptr<int64_t>());
  return {.data = data_.index_select(0, rows.to(data_.device())),
          .target = target_.index_select(0, rows.to(target_.device()))};
}

}  // namespace accelerate
