// A hash that is the same in every process, which std::hash need not be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace accelerate {

// FNV-1a of 64 bits. Not against anybody who means harm: collisions are easily made.
class Fnv1a {
 public:
  static constexpr uint64_t kBasis = 0xcbf29ce484222325;
  static constexpr uint64_t kPrime = 0x100000001b3;

  constexpr Fnv1a& add(std::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<unsigned char>(byte)) * kPrime;
    return *this;
  }
  Fnv1a& add(const void* data, size_t size) {
    return add(std::string_view(static_cast<const char*>(data), size));
  }
  constexpr uint64_t value() const { return value_; }

 private:
  uint64_t value_ = kBasis;
};

constexpr uint64_t fnv1a(std::string_view bytes) { return Fnv1a().add(bytes).value(); }

}  // namespace accelerate
