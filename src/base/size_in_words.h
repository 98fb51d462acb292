// Sizes for people. Standard headers only.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace accelerate {

// "999 B", then "1.2 KiB" to "16.0 EiB" with that many digits after the point.
inline std::string size_in_words(uint64_t bytes, int digits) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double limit = 1024 - 0.5 * std::pow(10, -digits);  // would be written as 1024
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (size >= limit && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, size, kUnits[unit]);
  return text.data();
}

}  // namespace accelerate
