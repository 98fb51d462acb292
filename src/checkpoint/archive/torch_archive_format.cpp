#include "checkpoint/archive/torch_archive_format.h"

#include <algorithm>
#include <array>
#include <utility>

namespace accelerate {
namespace {

using at::ScalarType;

constexpr std::array<std::pair<ScalarType, std::string_view>, 22> kNames{{
    {ScalarType::Float, "float32"},
    {ScalarType::Double, "float64"},
    {ScalarType::Half, "float16"},
    {ScalarType::BFloat16, "bfloat16"},
    {ScalarType::Long, "int64"},
    {ScalarType::Int, "int32"},
    {ScalarType::Short, "int16"},
    {ScalarType::Char, "int8"},
    {ScalarType::Byte, "uint8"},
    {ScalarType::Bool, "bool"},
    {ScalarType::ComplexFloat, "complex64"},
    {ScalarType::ComplexDouble, "complex128"},
    {ScalarType::ComplexHalf, "complex32"},
    {ScalarType::UInt16, "uint16"},
    {ScalarType::UInt32, "uint32"},
    {ScalarType::UInt64, "uint64"},
    {ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
    {ScalarType::Float8_e5m2, "float8_e5m2"},
    {ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz"},
    {ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz"},
    {ScalarType::Float8_e8m0fnu, "float8_e8m0fnu"},
    {ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2"},
}};

}  // namespace

std::optional<std::string_view> torch_dtype_name(at::ScalarType type) {
  const auto* found = std::ranges::find(kNames, type, &decltype(kNames)::value_type::first);
  if (found == kNames.end()) return std::nullopt;
  return found->second;
}

at::ScalarType torch_dtype(std::string_view name) {
  return std::ranges::find(kNames, name, &decltype(kNames)::value_type::second)->first;
}

std::string ValuePath::text() const {
  std::string text;
  for (const std::string& name : names_) text += "[" + name + "]";
  return text.empty() ? "the value itself" : text;
}

}  // namespace accelerate
