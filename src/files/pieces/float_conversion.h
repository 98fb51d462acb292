// Elements of other types as float32.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "files/safetensors/tensor_dtype.h"

namespace accelerate::files {

// Whether to_floats() knows the type: F16, BF16, F32, F64, integers and bools.
bool is_convertible(TensorDtype dtype);

// The numbers behind these bytes, a whole number of elements of a convertible type; where float32
// does not have the number, the nearest that it has.
std::vector<float> to_floats(TensorDtype dtype, std::span<const std::byte> elements);

// Whether float32 has every one of the numbers, so that nothing is lost.
bool fit_floats(TensorDtype dtype, std::span<const std::byte> elements);

}  // namespace accelerate::files
