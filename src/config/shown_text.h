// Words of a file or a command line inside a message.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::config {

// `text` with a question mark for each control character, which could steer a terminal, and cut off
// with "..." where it is too long for a message, never inside a character of UTF-8.
std::string shown_text(std::string_view text);

}  // namespace accelerate::config
