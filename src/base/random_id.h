// Names that nobody else has.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace accelerate {

// Of the system, not of a generator that a seed could make repeat itself.
inline uint64_t random_bits() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32U | random();
}

// 16 lower-case hexadecimal digits.
inline std::string random_id() {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(random_bits()));
  return digits.data();
}

}  // namespace accelerate
