#include "transformers/tokenizers/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

bool is_whitespace(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  if (character == 0x85) return true;
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_control(char32_t character) {
  if (character < 0x80) return character < 0x20 || character == 0x7f;
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character >= '!' && character <= '/') || (character >= ':' && character <= '@') ||
           (character >= '[' && character <= '`') || (character >= '{' && character <= '~');
  }
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_numeric(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_nonspacing_mark(char32_t character) {
  return character >= 0x300 && category(character) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(char32_t character) {
  if (character < 0x300) return false;
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t character) {
  if (character < 0x80) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '_';
  }
  const auto kind = category(character);
  const bool joiner = character == 0x200c || character == 0x200d;
  // Circled letters are no letters, and yet alphabetic.
  const bool circled = (character >= 0x24b6 && character <= 0x24e9) ||
                       (character >= 0x1f130 && character <= 0x1f149) ||
                       (character >= 0x1f150 && character <= 0x1f169) ||
                       (character >= 0x1f170 && character <= 0x1f189);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
         kind == UTF8PROC_CATEGORY_PC || joiner || circled;
}

bool is_chinese(char32_t character) {
  const auto between = [character](char32_t low, char32_t high) {
    return character >= low && character <= high;
  };
  return character >= 0x3400 &&
         (between(0x4e00, 0x9fff) || between(0x3400, 0x4dbf) || between(0x20000, 0x2a6df) ||
          between(0x2a700, 0x2b73f) || between(0x2b740, 0x2b81f) || between(0x2b920, 0x2ceaf) ||
          between(0xf900, 0xfaff) || between(0x2f800, 0x2fa1f));
}

CharSequence lower_case(char32_t character) {
  // The one character whose lower case is two wherever it stands: I with a dot above.
  if (character == 0x130) return {{U'i', 0x307}, 2};
  if (character < 0x80) {
    return {{character >= 'A' && character <= 'Z' ? character + 0x20 : character}, 1};
  }
  return {{static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)))}, 1};
}

CharSequence decompose(char32_t character, Decomposition kind) {
  if (character < 0x80) return {{character}, 1};
  const int compatible = kind == Decomposition::kCompatible ? UTF8PROC_COMPAT : 0;
  std::array<utf8proc_int32_t, 20> buffer{};
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(character), buffer.data(), buffer.size(),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | compatible), nullptr);
  if (count <= 0 || static_cast<size_t>(count) > buffer.size()) return {{character}, 1};
  CharSequence result;
  result.size = static_cast<size_t>(count);
  std::copy_n(buffer.begin(), result.size, result.chars.begin());
  return result;
}

char32_t compose(char32_t first, char32_t second) {
  // Only marks and the later parts of Hangul syllables ever join what stands before them.
  const bool jamo = second >= 0x1161 && second <= 0x11c2;
  if (!jamo && !is_mark(second)) return 0;
  std::array<utf8proc_int32_t, 2> buffer{static_cast<utf8proc_int32_t>(first),
                                         static_cast<utf8proc_int32_t>(second)};
  const auto count = utf8proc_normalize_utf32(
      buffer.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return count == 1 ? static_cast<char32_t>(buffer[0]) : 0;
}

int combining_class(char32_t character) {
  if (character < 0x300) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(character))->combining_class;
}

size_t grapheme_bytes(std::string_view text) {
  DecodedChar last = char_at(text, 0);
  // Of ASCII, CR and LF alone belong together.
  if (last.value < 0x80 && last.value != '\r' && text.size() > 1 &&
      static_cast<unsigned char>(text[1]) < 0x80) {
    return 1;
  }
  size_t end = last.bytes;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const DecodedChar next = char_at(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    end += next.bytes;
    last = next;
  }
  return end;
}

}  // namespace accelerate::tokenizers
