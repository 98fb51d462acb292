// Bytes as visible characters: byte-level vocabularies write every byte as one character of their
// own, most of ASCII as itself and the rest from U+0100 on.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace accelerate::tokenizers {

struct ByteAlphabet {
  std::array<char32_t, 256> chars{};    // of each byte
  std::array<std::string, 256> utf8{};  // the same
  std::array<int, 0x144> bytes{};       // of each character; -1: none
};
const ByteAlphabet& byte_alphabet();

// The bytes that the characters of `text` stand for; nothing if one of them stands for none.
std::optional<std::string> bytes_of_chars(std::string_view text);
// Each byte as its character.
std::string chars_of_bytes(std::string_view bytes);

}  // namespace accelerate::tokenizers
