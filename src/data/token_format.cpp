#include "data/token_format.h"

#include <algorithm>
#include <array>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

constexpr size_t kHeaderBytes = 1024;  // 256 int32

struct TokenFileKind {
  uint32_t magic;
  uint32_t version;
  size_t token_bytes;
};
constexpr std::array<TokenFileKind, 2> kKinds{{{20240520, 1, 2}, {20240801, 7, 4}}};

uint32_t word(std::span<const std::byte> file, size_t index) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) {
    value = value << 8 | std::to_integer<uint32_t>(file[4 * index + i]);
  }
  return value;
}

[[noreturn]] void refuse_token_file(const std::filesystem::path& path, size_t offset,
                                    const std::string& what, const std::string& hint) {
  throw DataError(
      {.what = what, .where = path.string() + ", byte " + std::to_string(offset), .hint = hint});
}

}  // namespace

bool begins_with_token_header(std::span<const std::byte> file) {
  if (file.size() < kHeaderBytes) return false;
  return std::ranges::any_of(kKinds, [&](const TokenFileKind& kind) {
    return word(file, 0) == kind.magic && word(file, 1) == kind.version;
  });
}

TokenLayout parse_token_header(std::span<const std::byte> file, const std::filesystem::path& path) {
  const std::string no_header_hint =
      "if the file has no header, say how its tokens are stored (TokenOptions::stored)";
  if (file.size() < kHeaderBytes) {
    refuse_token_file(
        path, file.size(),
        "the token file ends inside its header of " + std::to_string(kHeaderBytes) + " bytes",
        no_header_hint);
  }
  const uint32_t magic = word(file, 0);
  for (const TokenFileKind& kind : kKinds) {
    if (kind.magic != magic) continue;
    if (word(file, 1) != kind.version) {
      refuse_token_file(path, 4,
                        "the token file is of version " + std::to_string(word(file, 1)) +
                            ", the known one is " + std::to_string(kind.version),
                        "write the file again with the current scripts of llm.c");
    }
    const uint64_t tokens = word(file, 2);
    const uint64_t promised = tokens * kind.token_bytes;
    const uint64_t found = file.size() - kHeaderBytes;
    if (found != promised) {
      refuse_token_file(path, 8,
                        "the header of the token file promises " + std::to_string(tokens) +
                            " tokens in " + std::to_string(promised) + " bytes, the file holds " +
                            std::to_string(found),
                        found < promised ? "the file is truncated: fetch or write it again"
                                         : "the file is damaged: fetch or write it again");
    }
    return {.token_bytes = kind.token_bytes, .offset = kHeaderBytes, .tokens = tokens};
  }
  refuse_token_file(path, 0, "not a token file: it does not begin with a known magic number",
                    no_header_hint);
}

TokenLayout plain_token_layout(uint64_t file_bytes, size_t token_bytes, uint64_t offset,
                               const std::filesystem::path& path) {
  if (offset % token_bytes != 0) {
    throw UsageError({.what = "TokenOptions: an offset of " + std::to_string(offset) +
                              " bytes is not a multiple of the " + std::to_string(token_bytes) +
                              " bytes of a token",
                      .where = path.string()});
  }
  if (offset >= file_bytes) {
    refuse_token_file(path, file_bytes,
                      "the token file ends before its first token, which should be at byte " +
                          std::to_string(offset),
                      "check TokenOptions::offset");
  }
  const uint64_t bytes = file_bytes - offset;
  if (bytes % token_bytes != 0) {
    refuse_token_file(path, file_bytes,
                      "the token file ends inside a token: it holds " + std::to_string(bytes) +
                          " bytes of tokens of " + std::to_string(token_bytes),
                      "check TokenOptions::stored, or whether the file is truncated");
  }
  return {.token_bytes = token_bytes,
          .offset = static_cast<size_t>(offset),
          .tokens = bytes / token_bytes};
}

}  // namespace accelerate
