// Tensors that are one tensor under several names.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "accelerate/safetensors.h"

namespace accelerate::checkpoint {

struct DistinctTensors {
  NamedTensors kept;                           // the first of each, in their order
  std::map<std::string, std::string> aliases;  // other name -> kept name
};

// Two tensors are one if memory, type, shape and strides are the same. Tensors without elements are
// never shared.
DistinctTensors drop_aliases(const NamedTensors& tensors);

// By which tensors are known to share it: where it begins; on the meta device, its storage.
const void* memory_of(const at::Tensor& tensor);

}  // namespace accelerate::checkpoint
