#include "data/idx_format.h"

#include <string>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_idx_header(const std::filesystem::path& path, std::string what) {
  throw DataError({.what = std::move(what), .where = path.string()});
}

// 0 for a code that is not of the format.
size_t bytes_of_code(uint8_t code) {
  switch (static_cast<IdxType>(code)) {
    case IdxType::kUint8:
    case IdxType::kInt8:
      return 1;
    case IdxType::kInt16:
      return 2;
    case IdxType::kInt32:
    case IdxType::kFloat32:
      return 4;
    case IdxType::kFloat64:
      return 8;
  }
  return 0;
}

}  // namespace

size_t IdxMagic::element_bytes() const { return bytes_of_code(static_cast<uint8_t>(type)); }

IdxMagic parse_idx_magic(std::span<const uint8_t, 4> bytes, const std::filesystem::path& path) {
  if (bytes[0] != 0 || bytes[1] != 0 || bytes_of_code(bytes[2]) == 0) {
    refuse_idx_header(path,
                      "not an IDX file: its first bytes are not a magic number of the format");
  }
  return {.type = static_cast<IdxType>(bytes[2]), .dimensions = bytes[3]};
}

IdxHeader parse_idx_sizes(const IdxMagic& magic, std::span<const uint8_t> sizes,
                          const std::filesystem::path& path) {
  if (sizes.size() != 4 * magic.dimensions) refuse_truncated_idx_header(path);
  IdxHeader header{.magic = magic, .shape = {}, .data_bytes = 0};
  // Extents of zero are left out of the product at first, so that a hostile shape such as
  // {0, 2^32 - 1, 2^32 - 1, 2^32 - 1} cannot overflow the strides of the tensor either.
  bool empty = false;
  auto product = static_cast<int64_t>(magic.element_bytes());
  for (size_t i = 0; i < sizes.size(); i += 4) {
    const int64_t extent = (int64_t{sizes[i]} << 24) | (int64_t{sizes[i + 1]} << 16) |
                           (int64_t{sizes[i + 2]} << 8) | int64_t{sizes[i + 3]};
    header.shape.push_back(extent);
    empty = empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) {
      refuse_idx_header(path, "the IDX file claims more data than any file can hold");
    }
  }
  header.data_bytes = empty ? 0 : static_cast<size_t>(product);
  return header;
}

IdxHeader parse_idx(std::span<const uint8_t> file, const std::filesystem::path& path) {
  if (file.size() < 4) refuse_truncated_idx_header(path);
  const IdxMagic magic = parse_idx_magic(file.first<4>(), path);
  if (file.size() < magic.header_bytes()) refuse_truncated_idx_header(path);
  IdxHeader header = parse_idx_sizes(magic, file.subspan(4, 4 * magic.dimensions), path);
  const size_t found = file.size() - magic.header_bytes();
  if (found < header.data_bytes) refuse_truncated_idx_data(header.data_bytes, found, path);
  if (found > header.data_bytes) refuse_idx_data_after_end(header.data_bytes, path);
  return header;
}

void refuse_truncated_idx_header(const std::filesystem::path& path) {
  refuse_idx_header(path, "the IDX file is truncated: it ends inside its header");
}

void refuse_truncated_idx_data(size_t promised, size_t found, const std::filesystem::path& path) {
  refuse_idx_header(path, "the IDX file is truncated: its header promises " +
                              std::to_string(promised) + " bytes of data, it holds " +
                              std::to_string(found));
}

void refuse_idx_data_after_end(size_t promised, const std::filesystem::path& path) {
  refuse_idx_header(path, "the IDX file goes on after the " + std::to_string(promised) +
                              " bytes of data that its header promises");
}

}  // namespace accelerate
