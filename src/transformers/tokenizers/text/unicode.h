// Properties of characters, from utf8proc.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace accelerate::tokenizers {

// White_Space of Unicode.
bool is_whitespace(char32_t character);
// General categories Cc, Cf and Co, of which tabs and ends of lines are a part.
bool is_control(char32_t character);
// General categories P*, and what ASCII counts as punctuation beside them: $+<=>^`|~.
bool is_punctuation(char32_t character);
// General categories Nd, Nl, No.
bool is_numeric(char32_t character);
bool is_nonspacing_mark(char32_t character);  // Mn
bool is_mark(char32_t character);             // Mn, Mc, Me
// Letters, marks, decimal digits, connectors and joiners: \w of regular expressions.
bool is_word(char32_t character);
// Ideographs of Chinese, which BERT sets apart.
bool is_chinese(char32_t character);

struct CharSequence {
  std::array<char32_t, 20> chars{};
  size_t size = 0;
  std::span<const char32_t> view() const& { return {chars.data(), size}; }
  void view() && = delete;  // it would outlive what it looks at
};
// Full lower case, without regard to what stands around the character.
CharSequence lower_case(char32_t character);

enum class Decomposition { kCanonical, kCompatible };
// All the way down, not yet in canonical order.
CharSequence decompose(char32_t character, Decomposition kind);
// The character that `first` and `second` make together, or 0.
char32_t compose(char32_t first, char32_t second);
// Canonical_Combining_Class: 0 for what begins a character.
int combining_class(char32_t character);

// The bytes of the first character as a reader sees it (an extended grapheme cluster). `text` is
// valid UTF-8 and not empty.
size_t grapheme_bytes(std::string_view text);

}  // namespace accelerate::tokenizers
