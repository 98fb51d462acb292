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

// The names under which `metadata` of a file keeps aliases of the tensors `names`: entries whose
// value is one of the names and whose key is not. The key "format" is none.
std::map<std::string, std::string> aliases_of(const SafetensorsMetadata& metadata,
                                              const std::vector<std::string>& names);

}  // namespace accelerate::checkpoint
