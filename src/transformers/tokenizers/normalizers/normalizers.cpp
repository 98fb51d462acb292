#include "transformers/tokenizers/normalizers/normalizers.h"

#include <vector>

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/pattern/pattern.h"
#include "transformers/tokenizers/pattern/pattern_field.h"
#include "transformers/tokenizers/text/byte_level.h"
#include "transformers/tokenizers/text/normal_forms.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

// A normalizer without settings of its own.
template <auto Apply>
class Plain final : public Normalizer {
 public:
  void normalize(AlignedText& text) const override { Apply(text); }
};

void strip_accents(AlignedText& text) {
  text.keep_if([](char32_t c) { return !is_mark(c); });
}

// The cleaning of machine translation: control characters go, what looks like a space is one.
void clean_for_translation(AlignedText& text) {
  text.keep_if([](char32_t c) {
    return !((c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
             c == 0x8f || c == 0x9f);
  });
  text.map_chars([](char32_t c) {
    const bool space = c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    return space ? U' ' : c;
  });
}

void bytes_to_chars(AlignedText& text) {
  AlignedTextBuilder builder(text);
  for (uint32_t i = 0; i < text.size(); ++i) {
    builder.append(byte_alphabet().utf8[static_cast<unsigned char>(text.text()[i])], i);
  }
  text = builder.take();
}

class Strip final : public Normalizer {
 public:
  explicit Strip(const JsonFields& fields)
      : left_(fields.flag("strip_left")), right_(fields.flag("strip_right")) {}
  void normalize(AlignedText& text) const override { text.strip(left_, right_); }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const JsonFields& fields) : beginning_(fields.text("prepend")) {}
  void normalize(AlignedText& text) const override { text.prepend(beginning_); }

 private:
  std::string beginning_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonFields& fields)
      : pattern_(read_pattern(fields)), content_(fields.text("content")) {}

  void normalize(AlignedText& text) const override {
    std::vector<Span> matches;
    if (!text.empty()) pattern_.find_all(text.text(), matches);
    if (matches.empty()) return;
    AlignedTextBuilder builder(text);
    uint32_t done = 0;
    for (const Span match : matches) {
      builder.copy({done, match.begin});
      // What is new stands for the last character that it replaces or follows.
      const uint32_t begin = text.source(0).begin;
      builder.append(content_, match.end == 0 ? Span{begin, begin} : text.source(match.end - 1));
      done = match.end;
    }
    builder.copy({done, text.size()});
    text = builder.take();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class NormalizerSequence final : public Normalizer {
 public:
  NormalizerSequence(const JsonFields& fields, int depth) {
    size_t number = 0;
    for (const nlohmann::json& part : fields.list("normalizers")) {
      const std::string where = fields.place("normalizers") + '[' + std::to_string(number++) + ']';
      parts_.push_back(make_normalizer(part, where, depth + 1));
    }
  }
  void normalize(AlignedText& text) const override {
    for (const auto& part : parts_) part->normalize(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

template <NormalForm Form>
void normal_form(AlignedText& text) {
  to_normal_form(text, Form);
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json& json,
                                                  const std::string& where, int depth) {
  check_depth(depth, where);
  const JsonFields fields(json, where);
  const std::string type = fields.type();
  if (type == "BertNormalizer") return make_bert_normalizer(json, where);
  if (type == "NFC") return std::make_unique<Plain<normal_form<NormalForm::kNfc>>>();
  if (type == "NFD") return std::make_unique<Plain<normal_form<NormalForm::kNfd>>>();
  if (type == "NFKC") return std::make_unique<Plain<normal_form<NormalForm::kNfkc>>>();
  if (type == "NFKD") return std::make_unique<Plain<normal_form<NormalForm::kNfkd>>>();
  if (type == "Lowercase") return std::make_unique<Plain<to_lower_case>>();
  if (type == "StripAccents") return std::make_unique<Plain<strip_accents>>();
  if (type == "Nmt") return std::make_unique<Plain<clean_for_translation>>();
  if (type == "ByteLevel") return std::make_unique<Plain<bytes_to_chars>>();
  if (type == "Strip") return std::make_unique<Strip>(fields);
  if (type == "Prepend") return std::make_unique<Prepend>(fields);
  if (type == "Replace") return std::make_unique<Replace>(fields);
  if (type == "Precompiled") return make_charsmap_normalizer(json, where);
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(fields, depth);
  refuse_type("normalizer", fields);
}

}  // namespace accelerate::tokenizers
