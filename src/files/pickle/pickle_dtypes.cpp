#include "files/pickle/pickle_dtypes.h"

#include <algorithm>
#include <array>

namespace accelerate::files {
namespace {

constexpr std::array<PickleDtypeFacts, 22> kPickleDtypes{{
    {"float32", "FloatStorage", 4},
    {"float64", "DoubleStorage", 8},
    {"float16", "HalfStorage", 2},
    {"bfloat16", "BFloat16Storage", 2},
    {"int64", "LongStorage", 8},
    {"int32", "IntStorage", 4},
    {"int16", "ShortStorage", 2},
    {"int8", "CharStorage", 1},
    {"uint8", "ByteStorage", 1},
    {"bool", "BoolStorage", 1},
    {"complex64", "ComplexFloatStorage", 8},
    {"complex128", "ComplexDoubleStorage", 16},
    {"complex32", "", 4},
    {"uint16", "", 2},
    {"uint32", "", 4},
    {"uint64", "", 8},
    {"float8_e4m3fn", "", 1},
    {"float8_e5m2", "", 1},
    {"float8_e4m3fnuz", "", 1},
    {"float8_e5m2fnuz", "", 1},
    {"float8_e8m0fnu", "", 1},
    {"float4_e2m1fn_x2", "", 1},
}};

const PickleDtypeFacts* find(std::string_view text, std::string_view PickleDtypeFacts::*member) {
  const auto* found = std::ranges::find(kPickleDtypes, text, member);
  return text.empty() || found == kPickleDtypes.end() ? nullptr : found;
}

}  // namespace

const PickleDtypeFacts* find_pickle_dtype(std::string_view name) {
  return find(name, &PickleDtypeFacts::name);
}

const PickleDtypeFacts* find_pickle_storage_class(std::string_view storage) {
  return find(storage, &PickleDtypeFacts::storage);
}

}  // namespace accelerate::files
