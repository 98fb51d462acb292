#include "transformers/tokenizers/text/printable.h"

namespace accelerate::tokenizers {

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 80;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char letter : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x20 && byte < 0x7f) {
      result += letter;
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xf]};
    }
  }
  return result + (text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace accelerate::tokenizers
