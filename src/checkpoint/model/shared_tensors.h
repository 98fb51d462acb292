// Tensors that are one tensor under several names.
#pragma once

#include <map>
#include <string>

#include "accelerate/safetensors.h"

namespace accelerate::checkpoint {

struct DistinctTensors {
  NamedTensors kept;                           // the first of each, in their order
  std::map<std::string, std::string> aliases;  // other name -> kept name
};

// Two tensors are one if memory, type, shape and strides are the same. Tensors without elements are
// never shared, nor are those without memory of their own (meta).
DistinctTensors drop_aliases(const NamedTensors& tensors);

}  // namespace accelerate::checkpoint
