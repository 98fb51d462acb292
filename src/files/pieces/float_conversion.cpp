#include "files/pieces/float_conversion.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace accelerate::files {
namespace {

struct HalfBits {
  uint16_t bits;
};
struct BfloatBits {
  uint16_t bits;
};
struct BoolByte {
  uint8_t byte;
};

float value_of(BfloatBits element) { return std::bit_cast<float>(uint32_t{element.bits} << 16U); }
float value_of(BoolByte element) { return element.byte == 0 ? 0.0F : 1.0F; }

float value_of(HalfBits element) {
  const uint32_t sign = uint32_t{element.bits & 0x8000U} << 16U;
  const uint32_t exponent = (element.bits >> 10U) & 0x1fU;
  const uint32_t fraction = element.bits & 0x3ffU;
  if (exponent == 0) {  // zero and what is below the normal numbers: multiples of 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 0x1f ? 0xffU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

template <class Number>
requires std::is_arithmetic_v<Number>
float value_of(Number number) { return static_cast<float>(number); }

template <class Number>
bool fits(Number number) {
  if constexpr (std::is_same_v<Number, double>) {
    return std::isnan(number) || double{static_cast<float>(number)} == number;
  } else if constexpr (std::is_integral_v<Number> && sizeof(Number) >= 4) {
    // The float next to the largest number is beyond its type.
    constexpr int kDigits = std::numeric_limits<Number>::digits;
    const double nearest = static_cast<float>(number);
    return nearest < std::ldexp(1.0, kDigits) && static_cast<Number>(nearest) == number;
  } else {
    return true;
  }
}

// Calls `use` with each element.
template <class Element, class Use>
void for_each_element(std::span<const std::byte> bytes, const Use& use) {
  for (size_t at = 0; at + sizeof(Element) <= bytes.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + at, sizeof(element));
    use(element);
  }
}

// Of the type that `dtype` stands for; false if it is not a convertible one.
template <class Use>
bool visit_elements(TensorDtype dtype, std::span<const std::byte> bytes, const Use& use) {
  switch (dtype) {
    case TensorDtype::kBool:
      return for_each_element<BoolByte>(bytes, use), true;
    case TensorDtype::kU8:
      return for_each_element<uint8_t>(bytes, use), true;
    case TensorDtype::kI8:
      return for_each_element<int8_t>(bytes, use), true;
    case TensorDtype::kI16:
      return for_each_element<int16_t>(bytes, use), true;
    case TensorDtype::kU16:
      return for_each_element<uint16_t>(bytes, use), true;
    case TensorDtype::kF16:
      return for_each_element<HalfBits>(bytes, use), true;
    case TensorDtype::kBF16:
      return for_each_element<BfloatBits>(bytes, use), true;
    case TensorDtype::kI32:
      return for_each_element<int32_t>(bytes, use), true;
    case TensorDtype::kU32:
      return for_each_element<uint32_t>(bytes, use), true;
    case TensorDtype::kF32:
      return for_each_element<float>(bytes, use), true;
    case TensorDtype::kF64:
      return for_each_element<double>(bytes, use), true;
    case TensorDtype::kI64:
      return for_each_element<int64_t>(bytes, use), true;
    case TensorDtype::kU64:
      return for_each_element<uint64_t>(bytes, use), true;
    default:
      return false;
  }
}

}  // namespace

bool is_convertible(TensorDtype dtype) {
  return visit_elements(dtype, {}, [](auto /*element*/) {});
}

std::vector<float> to_floats(TensorDtype dtype, std::span<const std::byte> elements) {
  std::vector<float> numbers;
  numbers.reserve(elements.size() * 8 / dtype_bits(dtype));
  visit_elements(dtype, elements, [&](auto element) { numbers.push_back(value_of(element)); });
  return numbers;
}

bool fit_floats(TensorDtype dtype, std::span<const std::byte> elements) {
  bool all_fit = true;
  visit_elements(dtype, elements, [&](auto element) {
    if constexpr (std::is_arithmetic_v<decltype(element)>) all_fit = all_fit && fits(element);
  });
  return all_fit;
}

}  // namespace accelerate::files
