#include "files/durable/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace accelerate::files {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { restart(); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t Checksum::digest() const { return XXH3_64bits_digest(&state_->xxh3); }

void Checksum::restart() { XXH3_64bits_reset(&state_->xxh3); }

uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(uint64_t checksum) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; checksum >>= 4) digits[i] = "0123456789abcdef"[checksum & 15];
  return digits;
}

std::optional<uint64_t> parse_checksum(std::string_view digits) {
  if (digits.size() != 16) return std::nullopt;
  uint64_t checksum = 0;
  for (const char digit : digits) {
    const size_t value = std::string_view("0123456789abcdef").find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    checksum = checksum << 4 | value;
  }
  return checksum;
}

}  // namespace accelerate::files
