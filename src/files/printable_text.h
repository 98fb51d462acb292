// Text from a file that anybody may have written, fit to be printed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace accelerate::files {

// `text` with a question mark for each control character, which could steer a terminal, and cut off
// with "..." after about `limit` bytes, never inside a character of UTF-8.
std::string printable_text(std::string_view text, size_t limit = 300);

}  // namespace accelerate::files
