// The types of torch's elements, by their names in Python.
#pragma once

#include <cstdint>
#include <string_view>

namespace accelerate::files {

struct PickleDtypeFacts {
  std::string_view name;     // "float32"
  std::string_view storage;  // "FloatStorage"; empty where torch has none for the type
  uint8_t bytes;             // of an element
};

// nullptr if there is no such type. The results live for ever.
const PickleDtypeFacts* find_pickle_dtype(std::string_view name);
const PickleDtypeFacts* find_pickle_storage_class(std::string_view storage);

}  // namespace accelerate::files
