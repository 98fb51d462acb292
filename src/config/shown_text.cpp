#include "config/shown_text.h"

namespace accelerate::config {
namespace {

constexpr size_t kMostBytes = 200;
constexpr unsigned char kDelete = 0x7f;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string shown_text(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (shown.size() >= kMostBytes && !continues_character(c)) return shown + "...";
    if (shown.size() >= kMostBytes + 3) return shown + "...";  // no UTF-8
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < ' ' || byte == kDelete ? '?' : c;
  }
  return shown;
}

}  // namespace accelerate::config
