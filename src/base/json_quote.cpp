#include "base/json_quote.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace accelerate {
namespace {

// The length of the UTF-8 character at the front, 0 if there is no valid one.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
  if (first == 0xed && byte(1) > 0x9f) return 0;  // a surrogate
  if (first == 0xf0 && byte(1) < 0x90) return 0;  // overlong
  if (first == 0xf4 && byte(1) > 0x8f) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

void append_json_text(std::string& json, std::string_view text) {
  json += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      json += "\xef\xbf\xbd";
    } else if (length > 1) {
      json += text.substr(0, length);
    } else if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (c == '\t') {
      json += "\\t";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      json += escape.data();
    } else {
      json += c;
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  json += '"';
}

}  // namespace accelerate
