// Where the tokens of a token file are: bytes in, a description out. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace accelerate {

struct TokenLayout {
  size_t token_bytes = 2;  // 2 or 4
  size_t offset = 0;       // of the first token in the file, a multiple of token_bytes
  uint64_t tokens = 0;
};

// The layout of a file with the header of llm.c. Throws DataError, which names `path`, for another
// magic number or version, and for a file that is shorter or longer than the header says.
TokenLayout parse_token_header(std::span<const std::byte> file, const std::filesystem::path& path);

// Whether the file begins with the first words of a header that parse_token_header() knows.
bool begins_with_token_header(std::span<const std::byte> file);

// The layout of a file of `file_bytes` that has tokens from `offset` to its end. Throws UsageError
// for an offset that is no multiple of token_bytes, DataError if there is no token or a broken one.
TokenLayout plain_token_layout(uint64_t file_bytes, size_t token_bytes, uint64_t offset,
                               const std::filesystem::path& path);

}  // namespace accelerate
