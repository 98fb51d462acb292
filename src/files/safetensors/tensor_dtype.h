// The types of tensors that .safetensors files name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace accelerate::files {

// In the order of the safetensors library, which writes the last of them first.
enum class TensorDtype : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// As it is written in a file: "F32".
std::string_view dtype_name(TensorDtype dtype);
// None for a name that the format does not know; letter case counts.
std::optional<TensorDtype> dtype_of_name(std::string_view name);
// Of one element: 4 for F4, 8 for BOOL.
unsigned dtype_bits(TensorDtype dtype);

}  // namespace accelerate::files
