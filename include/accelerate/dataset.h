// Datasets that come with the library.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "accelerate/batch.h"

namespace accelerate {

// Sample i is (data[i], target[i]). Holds references to the two tensors, not copies; whole batches
// are gathered in one operation. Reading is safe from any thread.
class TensorDataset {
 public:
  // Throws UsageError unless both tensors have the same number of rows.
  TensorDataset(at::Tensor data, at::Tensor target);

  size_t size() const;
  Sample get(size_t index) const;
  Sample get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  at::Tensor data_;
  at::Tensor target_;
};

}  // namespace accelerate
