// Numbers as bytes, lowest first, whatever this machine does.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace accelerate::tracking {

template <std::unsigned_integral T>
void append_little_endian(std::string& bytes, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(number >> (8 * i))));
  }
}

// `bytes` holds at least sizeof(T).
template <std::unsigned_integral T>
T read_little_endian(std::string_view bytes) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    number |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i));
  }
  return number;
}

}  // namespace accelerate::tracking
