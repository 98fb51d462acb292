#include "files/printable_text.h"

namespace accelerate::files {

std::string printable_text(std::string_view text, size_t limit) {
  const bool is_long = text.size() > limit;
  if (is_long) {
    const auto continues = [&] { return (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80; };
    while (limit > 0 && continues()) --limit;
    text = text.substr(0, limit);
  }
  std::string result(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return is_long ? result + "..." : result;
}

}  // namespace accelerate::files
