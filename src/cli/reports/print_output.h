// What commands print for people.
#pragma once

#include <string>

namespace accelerate::cli {

// Writes `text` to standard output, with colours where that is a terminal.
void print_output(const std::string& text);

// `text` with lines of at most `width` columns: longer ones are broken between words, and go on in
// the column where their description begins (after a flag and two blanks or more), else under their
// first letter. A word that is longer than that stays whole.
std::string wrapped_lines(const std::string& text, size_t width);

inline constexpr size_t kHelpWidth = 80;

}  // namespace accelerate::cli
