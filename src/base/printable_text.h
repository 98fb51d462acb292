// Text that anybody may have written, in a file or on a command line, fit to be printed. Standard
// C++ alone: open to every room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/terminal_width.h"

namespace accelerate {

// `text` with a question mark for each control character, which could steer a terminal, and cut off
// with "..." after about `limit` bytes, never inside a character of UTF-8.
inline std::string printable_text(std::string_view text, size_t limit = 300) {
  const bool is_long = text.size() > limit;
  if (is_long) {
    while (limit > 0 && continues_character(text[limit])) --limit;
    text = text.substr(0, limit);
  }
  std::string result(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return is_long ? result + "..." : result;
}

// Whether `text` has letters, digits, punctuation and spaces of ASCII alone.
inline bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace accelerate
