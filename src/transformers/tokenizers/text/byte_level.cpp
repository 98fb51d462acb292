#include "transformers/tokenizers/text/byte_level.h"

#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const char32_t character = visible ? byte : next++;
    alphabet.chars[byte] = character;
    alphabet.utf8[byte] = utf8_of(character);
    alphabet.bytes[character] = static_cast<int>(byte);
  }
  return alphabet;
}

}  // namespace

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet = make_alphabet();
  return alphabet;
}

std::optional<std::string> bytes_of_chars(std::string_view text) {
  const ByteAlphabet& alphabet = byte_alphabet();
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar decoded = char_at(text, i);
    if (decoded.value >= alphabet.bytes.size() || alphabet.bytes[decoded.value] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(alphabet.bytes[decoded.value]);
    i += decoded.bytes;
  }
  return bytes;
}

std::string chars_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += byte_alphabet().utf8[static_cast<unsigned char>(c)];
  return text;
}

}  // namespace accelerate::tokenizers
