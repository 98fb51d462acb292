#include "files/safetensors/tensor_dtype.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace accelerate::files {
namespace {

struct DtypeFacts {
  std::string_view name;
  unsigned bits;
};

// In the order of the enumerators.
constexpr std::array<DtypeFacts, 22> kTensorDtypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(static_cast<size_t>(TensorDtype::kU64) + 1 == kTensorDtypes.size());

const DtypeFacts& facts_of(TensorDtype dtype) {
  return kTensorDtypes.at(static_cast<size_t>(dtype));
}

}  // namespace

std::string_view dtype_name(TensorDtype dtype) { return facts_of(dtype).name; }

std::optional<TensorDtype> dtype_of_name(std::string_view name) {
  const auto* found = std::find_if(kTensorDtypes.begin(), kTensorDtypes.end(),
                                   [&](const DtypeFacts& facts) { return facts.name == name; });
  if (found == kTensorDtypes.end()) return std::nullopt;
  return static_cast<TensorDtype>(found - kTensorDtypes.begin());
}

unsigned dtype_bits(TensorDtype dtype) { return facts_of(dtype).bits; }

}  // namespace accelerate::files
