// Texts of files in messages. Standard headers only.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace accelerate {

// Cut to what fits into a message, with dots where something is missing. What is not printable
// ASCII is written as \xNN, so that a message is a text whatever a file holds.
inline std::string shortened(std::string_view text) {
  constexpr size_t kLongest = 80;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  for (const char letter : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x20 && byte < 0x7f) {
      result += letter;
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xf]};
    }
  }
  if (text.size() > kLongest) result += "...";
  return result;
}

// shortened(), in quotes.
inline std::string in_quotes(std::string_view text) { return '"' + shortened(text) + '"'; }

// What nlohmann's parser says, without its own number and with the byte at which it stopped.
inline std::string json_complaint(const std::exception& error, size_t position) {
  // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while ..."
  std::string_view text = error.what();
  if (const size_t end = text.find("syntax error"); end != text.npos) text.remove_prefix(end);
  return shortened(text) + " at byte " + std::to_string(position);
}

}  // namespace accelerate
