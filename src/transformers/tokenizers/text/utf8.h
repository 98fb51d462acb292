// UTF-8: reading and writing code points. A "code point" here is a Unicode scalar value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::tokenizers {

struct DecodedChar {
  char32_t value = 0;
  uint32_t bytes = 0;
};

// The number of bytes of the character whose first byte is `lead`, which must begin one.
inline uint32_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

// The character at `position` of `text`, which must be valid UTF-8 and begin a character there.
inline DecodedChar char_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) {
    return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          4};
}

// The last character of `text`, which must be valid UTF-8 and not empty.
DecodedChar last_char(std::string_view text);

// Calls visit(character, its first byte) for each character of valid UTF-8.
template <typename Visit>
void for_each_char(std::string_view text, Visit visit) {
  for (size_t i = 0; i < text.size();) {
    const DecodedChar decoded = char_at(text, i);
    visit(decoded.value, i);
    i += decoded.bytes;
  }
}

inline uint32_t utf8_length(char32_t character) {
  if (character < 0x80) return 1;
  if (character < 0x800) return 2;
  return character < 0x10000 ? 3 : 4;
}
void append_utf8(std::string& text, char32_t character);
std::string utf8_of(char32_t character);

size_t count_chars(std::string_view text);
bool is_ascii(std::string_view text);

// The first byte that does not belong to valid UTF-8, or std::string_view::npos.
size_t find_invalid_utf8(std::string_view text);

// Each maximal beginning of a character that is not completed becomes one U+FFFD, as everywhere in
// Unicode.
std::string lossy_utf8(std::string_view bytes);

}  // namespace accelerate::tokenizers
