// The checksum of the records of TensorBoard: CRC-32C (Castagnoli).
#pragma once

#include <cstdint>
#include <string_view>

namespace accelerate::tracking {

uint32_t crc32c(std::string_view bytes);

// As it is stored, so that a checksum of data that hold checksums stays of use.
inline uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

}  // namespace accelerate::tracking
