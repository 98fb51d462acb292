// The header of a .npy file of NumPy: bytes in, a description out. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace accelerate {

enum class NpyKind : char { kBool = 'b', kSigned = 'i', kUnsigned = 'u', kFloat = 'f' };

struct NpyLayout {
  NpyKind kind = NpyKind::kFloat;
  size_t element_bytes = 4;
  std::vector<int64_t> shape;  // at least one dimension, the first counts the rows
  size_t offset = 0;           // of the first element in the file
  size_t row_bytes = 0;
};

// The layout of the array in `file`, all bytes of a .npy file of version 1, 2 or 3. Throws
// DataError, which names `path` and the byte, for damaged files and for arrays that are not rows of
// little-endian numbers one after the other: Fortran order, big-endian, objects, structures, text,
// complex numbers, no dimension. The file must be as long as the header says.
NpyLayout parse_npy(std::span<const std::byte> file, const std::filesystem::path& path);

}  // namespace accelerate
