#include "transformers/tokenizers/text/normal_forms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

// Marks behind one another are put into the order of their classes; a mark takes its change along.
void put_marks_in_order(std::vector<CharChange>& chars) {
  std::vector<std::pair<int, size_t>> order;
  std::vector<CharChange> sorted;
  for (size_t i = 0; i < chars.size();) {
    if (combining_class(chars[i].character) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < chars.size() && combining_class(chars[end].character) != 0) ++end;
    // In the order of (class, place): marks of one class stay as they are.
    order.clear();
    for (size_t mark = i; mark < end; ++mark) {
      order.emplace_back(combining_class(chars[mark].character), mark);
    }
    std::ranges::sort(order);
    sorted.clear();
    for (const auto& [mark_class, mark] : order) sorted.push_back(chars[mark]);
    std::ranges::copy(sorted, chars.begin() + static_cast<std::ptrdiff_t>(i));
    i = end;
  }
}

std::vector<CharChange> decomposed(std::string_view text, Decomposition kind) {
  std::vector<CharChange> chars;
  chars.reserve(text.size());
  for_each_char(text, [&](char32_t character, size_t) {
    int change = 0;
    const CharSequence parts = decompose(character, kind);
    for (const char32_t part : parts.view()) {
      chars.push_back({part, change});
      change = 1;
    }
  });
  put_marks_in_order(chars);
  return chars;
}

// Each mark joins the last character that began one, unless a mark of its own or a higher class
// stands between them. A character that took another in counts one old character less.
std::vector<CharChange> recomposed(const std::vector<CharChange>& chars) {
  std::vector<CharChange> result;
  result.reserve(chars.size());
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;
  int last_class = -1;  // of the marks that stayed behind the starter; -1: none
  for (const CharChange& next : chars) {
    const int next_class = combining_class(next.character);
    if (starter != kNone && last_class < next_class) {
      const char32_t joined = compose(result[starter].character, next.character);
      if (joined != 0) {
        result[starter].character = joined;
        result[starter].change += next.change - 1;
        continue;
      }
    }
    if (next_class == 0) {
      starter = result.size();
      last_class = -1;
    } else if (starter != kNone) {
      last_class = next_class;
    }
    result.push_back(next);
  }
  return result;
}

}  // namespace

void to_normal_form(AlignedText& text, NormalForm form) {
  // ASCII is in all four forms.
  if (is_ascii(text.text())) return;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto chars =
      decomposed(text.text(), compatible ? Decomposition::kCompatible : Decomposition::kCanonical);
  const bool compose_again = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  text.transform(compose_again ? recomposed(chars) : chars);
}

void to_lower_case(AlignedText& text) {
  bool one_for_one = true;
  for_each_char(text.text(), [&](char32_t character, size_t) {
    one_for_one = one_for_one && character != 0x130;
  });
  if (one_for_one) {
    text.map_chars([](char32_t character) { return lower_case(character).chars[0]; });
    return;
  }
  std::vector<CharChange> chars;
  for_each_char(text.text(), [&](char32_t character, size_t) {
    int change = 0;
    const CharSequence parts = lower_case(character);
    for (const char32_t part : parts.view()) {
      chars.push_back({part, change});
      change = 1;
    }
  });
  text.transform(chars);
}

}  // namespace accelerate::tokenizers
