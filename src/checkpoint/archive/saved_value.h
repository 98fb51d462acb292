// What values of saved state, those of a StateDict and those of an archive, have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "accelerate/errors.h"
#include "checkpoint/archive/state_value_tensor.h"

namespace accelerate::checkpoint {

inline constexpr const char* kOtherObjectHint = "load the state of an object of the same kind";

[[noreturn]] inline void refuse_missing_key(std::string_view key) {
  throw CheckpointError(
      {.what = "the saved state has no '" + std::string(key) + "'", .hint = kOtherObjectHint});
}

// The alternative `T` of `value`, which is called `kind`. Throws CheckpointError that says what is
// `expected` if it holds another.
template <class T, class Variant>
const T& get_saved(const Variant& value, const char* kind, const char* expected) {
  if (const T* held = std::get_if<T>(&value)) return *held;
  throw CheckpointError(
      {.what = std::string("the saved state has ") + kind + " where " + expected + " is expected",
       .hint = kOtherObjectHint});
}

// The same for a number, which may be an integer.
template <class Variant>
double get_saved_number(const Variant& value, const char* kind) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return get_saved<double>(value, kind, "a number");
}

// Whether both hold the same alternative with the same content; tensors with the same bits.
// `same_content(a, b)` compares what is no tensor.
template <class Variant, class SameContent>
bool same_saved(const Variant& left, const Variant& right, SameContent same_content) {
  return std::visit(
      [&]<class T>(const T& value, const auto& other) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(other)>, T>) {
          return false;
        } else if constexpr (std::is_same_v<T, at::Tensor>) {
          return same_bits(value, other);
        } else {
          return same_content(value, other);
        }
      },
      left, right);
}

}  // namespace accelerate::checkpoint
