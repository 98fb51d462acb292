#include <vector>

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/normalizers/normalizers.h"
#include "transformers/tokenizers/text/normal_forms.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

bool is_line_space(char32_t character) {
  return character == '\t' || character == '\n' || character == '\r';
}

bool is_kept(char32_t character) {
  if (character == 0 || character == 0xfffd) return false;
  return is_line_space(character) || !is_control(character);
}

void clean(AlignedText& text) {
  text.keep_if(is_kept);
  text.map_chars([](char32_t c) { return is_whitespace(c) ? U' ' : c; });
}

// Puts each ideograph between two spaces that belong to it.
void set_ideographs_apart(AlignedText& text) {
  bool any = false;
  for_each_char(text.text(), [&](char32_t c, size_t) { any = any || is_chinese(c); });
  if (!any) return;
  std::vector<CharChange> chars;
  chars.reserve(text.text().size());
  for_each_char(text.text(), [&](char32_t c, size_t) {
    if (is_chinese(c)) {
      chars.insert(chars.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
    } else {
      chars.push_back({c, 0});
    }
  });
  text.transform(chars);
}

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonFields& fields)
      : clean_(fields.flag("clean_text")),
        ideographs_(fields.flag("handle_chinese_chars")),
        lower_(fields.flag("lowercase")),
        strip_accents_(fields.flag_or("strip_accents", lower_)) {}

  void normalize(AlignedText& text) const override {
    const bool ascii = is_ascii(text.text());
    if (clean_) clean(text);
    if (ideographs_ && !ascii) set_ideographs_apart(text);
    if (strip_accents_ && !ascii) {
      to_normal_form(text, NormalForm::kNfd);
      text.keep_if([](char32_t c) { return !is_nonspacing_mark(c); });
    }
    if (lower_) to_lower_case(text);
  }

 private:
  bool clean_;
  bool ideographs_;
  bool lower_;
  bool strip_accents_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_bert_normalizer(const nlohmann::json& json,
                                                       const std::string& where) {
  return std::make_unique<BertNormalizer>(JsonFields(json, where));
}

}  // namespace accelerate::tokenizers
