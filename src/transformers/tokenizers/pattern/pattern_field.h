// The field "pattern" of the components that search: {"String": text} or {"Regex": expression}.
#pragma once

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/pattern/pattern.h"

namespace accelerate::tokenizers {

// Throws DataError if there is no such field or its expression cannot be used.
Pattern read_pattern(const JsonFields& fields);

}  // namespace accelerate::tokenizers
