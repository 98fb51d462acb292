#include "tracking/crc32c.h"

#include <array>
#include <cstddef>

namespace accelerate::tracking {
namespace {

using CrcTables = std::array<std::array<uint32_t, 256>, 4>;

// Table k: the effect of a byte that 3 - k others follow in its word.
constexpr CrcTables make_crc_tables() {
  constexpr uint32_t kPolynomial = 0x82f63b78U;  // of Castagnoli, lowest bit first
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = crc;
  }
  for (size_t table = 1; table < tables.size(); ++table) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[table - 1][byte];
      tables[table][byte] = (before >> 8U) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  const auto byte_at = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i]));
  };
  size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    crc ^= byte_at(i) | byte_at(i + 1) << 8U | byte_at(i + 2) << 16U | byte_at(i + 3) << 24U;
    crc = kCrcTables[3][crc & 0xffU] ^ kCrcTables[2][(crc >> 8U) & 0xffU] ^
          kCrcTables[1][(crc >> 16U) & 0xffU] ^ kCrcTables[0][crc >> 24U];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8U) ^ kCrcTables[0][(crc ^ byte_at(i)) & 0xffU];
  return ~crc;
}

}  // namespace accelerate::tracking
