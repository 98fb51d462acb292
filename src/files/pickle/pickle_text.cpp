#include "files/pickle/pickle_text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace accelerate::files {
namespace {

unsigned char byte_of(char letter) { return static_cast<unsigned char>(letter); }

bool continues(unsigned char byte) { return (byte & 0xc0U) == 0x80U; }

// The bytes of the letter at the beginning of `text`, or 0 if there is none.
size_t letter_bytes(std::string_view text) {
  const unsigned char first = byte_of(text[0]);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if (!continues(byte_of(text[i]))) return 0;
  }
  const unsigned char second = byte_of(text[1]);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool too_large = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : bytes;
}

// Two's complement: the number of the opposite sign.
void negate(std::vector<unsigned char>& bytes) {
  unsigned carry = 1;
  for (unsigned char& byte : bytes) {
    const unsigned sum = (~unsigned{byte} & 0xffU) + carry;
    byte = static_cast<unsigned char>(sum & 0xffU);
    carry = sum >> 8U;
  }
}

}  // namespace

std::string shown(std::string_view name) {
  constexpr size_t kLongest = 100;
  std::string text(name.substr(0, kLongest));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return name.size() > kLongest ? text + "..." : text;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = letter_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string latin1_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char letter : bytes) {
    const unsigned char byte = byte_of(letter);
    if (byte < 0x80) {
      text.push_back(letter);
    } else {
      text.push_back(static_cast<char>(0xc0U | byte >> 6U));
      text.push_back(static_cast<char>(0x80U | (byte & 0x3fU)));
    }
  }
  return text;
}

std::optional<std::string> latin1_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char first = byte_of(text[i]);
    if (first < 0x80) {
      bytes.push_back(text[i]);
      continue;
    }
    if ((first != 0xc2 && first != 0xc3) || i + 1 == text.size()) return std::nullopt;
    const unsigned char second = byte_of(text[++i]);
    if (!continues(second)) return std::nullopt;
    bytes.push_back(static_cast<char>((first & 0x03U) << 6U | (second & 0x3fU)));
  }
  return bytes;
}

std::string decimal_of(std::string_view little_endian) {
  std::vector<unsigned char> rest(little_endian.begin(), little_endian.end());
  const bool negative = !rest.empty() && rest.back() >= 0x80;
  if (negative) negate(rest);
  std::string digits;
  while (!rest.empty()) {
    unsigned remainder = 0;
    for (size_t i = rest.size(); i-- > 0;) {
      const unsigned number = remainder << 8U | rest[i];
      rest[i] = static_cast<unsigned char>(number / 10);
      remainder = number % 10;
    }
    digits.push_back(static_cast<char>('0' + remainder));
    while (!rest.empty() && rest.back() == 0) rest.pop_back();
  }
  if (digits.empty()) digits = "0";
  if (negative) digits.push_back('-');
  std::ranges::reverse(digits);
  return digits;
}

std::optional<std::string> little_endian_of(std::string_view decimal) {
  const bool negative = decimal.starts_with('-');
  if (negative) decimal.remove_prefix(1);
  if (decimal.empty()) return std::nullopt;
  std::vector<unsigned char> bytes;
  for (const char digit : decimal) {
    if (digit < '0' || digit > '9') return std::nullopt;
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (unsigned char& byte : bytes) {
      const unsigned number = byte * 10U + carry;
      byte = static_cast<unsigned char>(number & 0xffU);
      carry = number >> 8U;
    }
    if (carry != 0) bytes.push_back(static_cast<unsigned char>(carry));
  }
  if (!bytes.empty() && bytes.back() >= 0x80) bytes.push_back(0);
  if (negative) {
    negate(bytes);
    while (bytes.size() > 1 && bytes.back() == 0xff && bytes[bytes.size() - 2] >= 0x80) {
      bytes.pop_back();
    }
  }
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace accelerate::files
