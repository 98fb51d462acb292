// Types of numbers as config.json names them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace accelerate::transformers {

// Of "float32", "torch.float32", "half" and so on; nothing for a name that is no type of a model.
std::optional<at::ScalarType> dtype_of_name(std::string_view name);

// "bfloat16"; null for a type that no model has.
const char* name_of_dtype(at::ScalarType dtype);

}  // namespace accelerate::transformers
