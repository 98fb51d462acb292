// The rules of SentencePiece, as its models carry them: a double array that leads from the bytes of
// characters to positions in a list of texts, each of which ends with a zero.
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/normalizers/normalizers.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=') && text.size() % 4 != 2) text.remove_suffix(1);
  std::array<int, 256> values{};
  values.fill(-1);
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kLetters.size(); ++i) {
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<int>(i);
  }
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

class CharsmapNormalizer final : public Normalizer {
 public:
  CharsmapNormalizer(const std::string& bytes, const std::string& where) {
    uint32_t array_bytes = 0;
    if (bytes.size() >= sizeof(array_bytes)) {
      std::memcpy(&array_bytes, bytes.data(), sizeof(array_bytes));
    }
    if (bytes.size() < sizeof(array_bytes) || array_bytes > bytes.size() - sizeof(array_bytes)) {
      throw DataError({.what = "the map of characters is cut off", .where = where});
    }
    units_.resize(array_bytes / sizeof(uint32_t));
    if (units_.empty()) throw DataError({.what = "the map of characters is empty", .where = where});
    std::memcpy(units_.data(), bytes.data() + sizeof(array_bytes),
                units_.size() * sizeof(uint32_t));
    texts_ = bytes.substr(sizeof(array_bytes) + units_.size() * sizeof(uint32_t));
    if (find_invalid_utf8(texts_) != std::string_view::npos) {
      throw DataError(
          {.what = "the map of characters leads to text that is not valid UTF-8", .where = where});
    }
  }

  void normalize(AlignedText& text) const override {
    std::vector<CharChange> chars;
    chars.reserve(text.text().size());
    bool modified = false;
    const auto replaced = [&](std::string_view part) {
      const auto replacement = find(part);
      if (!replacement) return false;
      replace(chars, part, *replacement);
      modified = true;
      return true;
    };
    std::string_view rest = text.text();
    while (!rest.empty()) {
      const std::string_view grapheme = rest.substr(0, grapheme_bytes(rest));
      rest.remove_prefix(grapheme.size());
      // What a reader sees as one character is looked up whole if it is short, else in its parts.
      if (grapheme.size() < 6 && replaced(grapheme)) continue;
      for_each_char(grapheme, [&](char32_t character, size_t begin) {
        if (!replaced(grapheme.substr(begin, utf8_length(character)))) {
          chars.push_back({character, 0});
        }
      });
    }
    if (modified) text.transform(chars);
  }

 private:
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
  static uint32_t label(uint32_t unit) { return unit & ((1U << 31) | 0xff); }

  // What the shortest beginning of `key` that the map knows becomes.
  std::optional<std::string_view> find(std::string_view key) const {
    uint32_t node = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) return std::nullopt;
      const bool leaf = (units_[node] >> 8 & 1) != 0;
      node ^= offset(units_[node]);
      if (!leaf) continue;
      if (node >= units_.size()) return std::nullopt;
      return text_at(units_[node] & 0x7fffffff);
    }
    return std::nullopt;
  }

  std::optional<std::string_view> text_at(uint32_t position) const {
    if (position > texts_.size()) return std::nullopt;
    const std::string_view text = std::string_view(texts_).substr(position);
    // A position inside of a character would be no text.
    if (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xc0) == 0x80) return std::nullopt;
    return text.substr(0, text.find('\0'));
  }

  static void replace(std::vector<CharChange>& chars, std::string_view old,
                      std::string_view replacement) {
    const auto removed = static_cast<int>(count_chars(old));
    const auto added = static_cast<int>(count_chars(replacement));
    int number = 0;
    for_each_char(replacement, [&](char32_t character, size_t) {
      chars.push_back({character, number++ < removed ? 0 : 1});
    });
    // The last character that stays speaks for those that are gone.
    if (added < removed && !chars.empty()) chars.back().change += added - removed;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_charsmap_normalizer(const nlohmann::json& json,
                                                           const std::string& where) {
  const JsonFields fields(json, where);
  const auto bytes = from_base64(fields.text("precompiled_charsmap"));
  if (!bytes) fields.refuse("precompiled_charsmap", "base64");
  return std::make_unique<CharsmapNormalizer>(*bytes, where);
}

}  // namespace accelerate::tokenizers
