// The checksum of the bytes of checkpoints: XXH3 with 64 bits, seed 0. `xxhsum -H3 file` prints the
// same digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::files {

// Takes bytes piece by piece; where the pieces end does not matter.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // Of all bytes since the beginning or the last restart().
  uint64_t digest() const;
  void restart();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(std::span<const std::byte> bytes);

// 16 lower-case hexadecimal digits.
std::string checksum_text(uint64_t checksum);
// The value of exactly such digits, else nothing.
std::optional<uint64_t> parse_checksum(std::string_view digits);

}  // namespace accelerate::files
