// Whether a type is a std::vector.
#pragma once

#include <vector>

namespace accelerate::detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

}  // namespace accelerate::detail
