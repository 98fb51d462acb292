// The header of an IDX file: bytes in, a description out. No libtorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace accelerate {

enum class IdxType : uint8_t {
  kUint8 = 0x08,
  kInt8 = 0x09,
  kInt16 = 0x0B,
  kInt32 = 0x0C,
  kFloat32 = 0x0D,
  kFloat64 = 0x0E,
};

// What the first four bytes say.
struct IdxMagic {
  IdxType type = IdxType::kUint8;
  size_t dimensions = 0;

  size_t element_bytes() const;
  // Of the whole header, these four included.
  size_t header_bytes() const { return 4 + 4 * dimensions; }
};

struct IdxHeader {
  IdxMagic magic;
  std::vector<int64_t> shape;
  size_t data_bytes = 0;  // the shape's product times the size of an element
};

// Both throw DataError, which names `path`, if the bytes are not those of an IDX file.
IdxMagic parse_idx_magic(std::span<const uint8_t, 4> bytes, const std::filesystem::path& path);
// `sizes` are the bytes of the header after the first four, all of them.
IdxHeader parse_idx_sizes(const IdxMagic& magic, std::span<const uint8_t> sizes,
                          const std::filesystem::path& path);

// The header at the beginning of `file`, all bytes of an IDX file that is not compressed. Throws
// DataError also if the file is shorter or longer than its header says.
IdxHeader parse_idx(std::span<const uint8_t> file, const std::filesystem::path& path);

[[noreturn]] void refuse_truncated_idx_header(const std::filesystem::path& path);
[[noreturn]] void refuse_truncated_idx_data(size_t promised, size_t found,
                                            const std::filesystem::path& path);
[[noreturn]] void refuse_idx_data_after_end(size_t promised, const std::filesystem::path& path);

}  // namespace accelerate
