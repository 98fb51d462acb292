#include "transformers/tokenizers/text/utf8.h"

#include <cstring>

namespace accelerate::tokenizers {
namespace {

constexpr uint64_t kHighBits = 0x8080808080808080;

// The end of the run of ASCII that begins at `position`.
size_t skip_ascii(std::string_view text, size_t position) {
  uint64_t word = 0;
  for (; position + sizeof(word) <= text.size(); position += sizeof(word)) {
    std::memcpy(&word, text.data() + position, sizeof(word));
    if ((word & kHighBits) != 0) break;
  }
  while (position < text.size() && static_cast<unsigned char>(text[position]) < 0x80) ++position;
  return position;
}

struct Utf8Sequence {
  size_t bytes = 0;  // that belong together
  bool complete = false;
};

// What stands at `position`, where a byte above 0x7f is: a character, or the beginning of one.
Utf8Sequence sequence_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned lead = byte(0);
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const size_t wanted = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Overlong forms, surrogates and what lies above U+10FFFF show in the second byte.
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (size_t i = 1; i < wanted; ++i) {
    if (position + i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {wanted, true};
}

}  // namespace

DecodedChar last_char(std::string_view text) {
  size_t begin = text.size() - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return char_at(text, begin);
}

void append_utf8(std::string& text, char32_t character) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((character >> shift) & 0x3f));
  };
  switch (utf8_length(character)) {
    case 1:
      text += static_cast<char>(character);
      break;
    case 2:
      text += static_cast<char>(0xc0 | (character >> 6));
      tail(0);
      break;
    case 3:
      text += static_cast<char>(0xe0 | (character >> 12));
      tail(6);
      tail(0);
      break;
    default:
      text += static_cast<char>(0xf0 | (character >> 18));
      tail(12);
      tail(6);
      tail(0);
  }
}

std::string utf8_of(char32_t character) {
  std::string text;
  append_utf8(text, character);
  return text;
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

bool is_ascii(std::string_view text) { return skip_ascii(text, 0) == text.size(); }

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = skip_ascii(text, 0); i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      i = skip_ascii(text, i);
      continue;
    }
    const Utf8Sequence sequence = sequence_at(text, i);
    if (!sequence.complete) return i;
    i += sequence.bytes;
  }
  return std::string_view::npos;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t end = skip_ascii(bytes, i);
    text.append(bytes, i, end - i);
    i = end;
    if (i == bytes.size()) break;
    const Utf8Sequence sequence = sequence_at(bytes, i);
    if (sequence.complete) {
      text.append(bytes, i, sequence.bytes);
    } else {
      text += "\xef\xbf\xbd";
    }
    i += sequence.bytes;
  }
  return text;
}

}  // namespace accelerate::tokenizers
