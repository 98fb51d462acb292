// Text in columns: how wide it is, how wide a terminal is, and lines that end between words.
// Nothing to link: open to every room.
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace accelerate {

// Whether a byte of UTF-8 text belongs to the character of the byte before it.
inline bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// Characters of UTF-8 text, each taken as one column.
inline size_t columns_of_text(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                           [](char byte) { return !continues_character(byte); }));
}

// What of `text` fits into `columns`.
inline std::string first_columns(std::string_view text, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!continues_character(text[i]) && seen++ == columns) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

// The width of the terminal that `fd` is; 0 if it is none, or does not say.
inline size_t columns_of_terminal(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// `text`, which begins at the column `begin`, broken between words so that lines end at `columns`.
// The lines after the first begin at the column `indent`. A word that is longer stays whole.
inline std::string words_in_lines(std::string_view text, size_t begin, size_t columns,
                                  size_t indent) {
  std::string result;
  size_t used = begin;
  bool begins_line = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const size_t width = columns_of_text(word);
    if (!begins_line && used + 1 + width > columns) {
      result += "\n" + std::string(indent, ' ');
      used = indent;
      begins_line = true;
    }
    if (!begins_line) result += ' ';
    result += word;
    used += width + (begins_line ? 0 : 1);
    begins_line = false;
  }
  return result;
}

}  // namespace accelerate
