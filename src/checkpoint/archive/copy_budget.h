// Whether copies of saved tensors fit into memory as the file does.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "accelerate/state_dict.h"

namespace accelerate::checkpoint {

// Strides of 0 let a few bytes of a file describe a tensor of terabytes, and a list may name one
// tensor over and over: copies of them would fill the memory. What this library saves has its own
// memory for nearly every tensor, so copies that take several times what the file holds are not
// of its making. Ask before tensors of free shape are copied.
class CopyBudget {
 public:
  // Counts `tensor`. False if the tensors so far describe far more than their memory holds.
  bool take(const at::Tensor& tensor);
  // Counts all tensors in it.
  bool take(const StateValue& value);

 private:
  std::unordered_set<const void*> storages_;
  double held_ = 0;       // bytes in the storages
  double described_ = 0;  // bytes that copies would take
};

}  // namespace accelerate::checkpoint
