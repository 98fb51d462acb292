#include "transformers/tokenizers/pre_tokenizers/pre_tokenizers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/pattern/pattern.h"
#include "transformers/tokenizers/pattern/pattern_field.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

SplitBehavior read_behavior(const JsonFields& fields) {
  constexpr std::array kNames{
      std::pair{"Removed", SplitBehavior::kRemoved},
      std::pair{"Isolated", SplitBehavior::kIsolated},
      std::pair{"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      std::pair{"MergedWithNext", SplitBehavior::kMergedWithNext},
      std::pair{"Contiguous", SplitBehavior::kContiguous},
  };
  const std::string name = fields.text("behavior");
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  fields.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Every character for which `is_delimiter` holds is a delimiter by itself.
template <typename IsDelimiter>
void split_at_chars(Segment& segment, SplitBehavior behavior, IsDelimiter is_delimiter) {
  split_again(segment, behavior, [&](std::string_view text, std::vector<Stretch>& stretches) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < text.size();) {
      const DecodedChar decoded = char_at(text, i);
      const uint32_t end = i + decoded.bytes;
      if (is_delimiter(decoded.value)) {
        if (done < i) stretches.push_back({{done, i}, false});
        stretches.push_back({{i, end}, true});
        done = end;
      }
      i = end;
    }
    if (done < text.size())
      stretches.push_back({{done, static_cast<uint32_t>(text.size())}, false});
  });
}

class AtChars final : public PreTokenizer {
 public:
  using IsDelimiter = bool (*)(char32_t);
  AtChars(SplitBehavior behavior, IsDelimiter is_delimiter)
      : behavior_(behavior), is_delimiter_(is_delimiter) {}
  void pre_tokenize(Segment& segment) const override {
    split_at_chars(segment, behavior_, is_delimiter_);
  }

 private:
  SplitBehavior behavior_;
  IsDelimiter is_delimiter_;
};

class AtDelimiter final : public PreTokenizer {
 public:
  explicit AtDelimiter(char32_t delimiter) : delimiter_(delimiter) {}
  void pre_tokenize(Segment& segment) const override {
    split_at_chars(segment, SplitBehavior::kRemoved,
                   [this](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// Neighbouring characters of one kind stay together; a kind of -1 is dropped, and what stands for
// itself is always cut.
struct CharKind {
  int kind = 0;
  bool alone = false;
};
template <CharKind (*KindOf)(char32_t)>
class ByKind final : public PreTokenizer {
 public:
  void pre_tokenize(Segment& segment) const override {
    std::vector<Span> splits;
    splits.reserve(segment.splits.size() + segment.text.size() / 4);
    for (const Span split : segment.splits) append(segment.text.text(), split, splits);
    segment.splits = std::move(splits);
  }

 private:
  static void append(const std::string& text, Span split, std::vector<Span>& splits) {
    uint32_t begin = split.begin;
    CharKind last{-1, false};
    for (uint32_t i = split.begin; i < split.end;) {
      const DecodedChar decoded = char_at(text, i);
      const CharKind kind = KindOf(decoded.value);
      if (kind.kind != last.kind || kind.alone) {
        if (last.kind >= 0) splits.push_back({begin, i});
        begin = i;
      }
      last = kind;
      i += decoded.bytes;
    }
    if (last.kind >= 0) splits.push_back({begin, split.end});
  }
};

CharKind bert_kind(char32_t c) {
  if (is_whitespace(c)) return {-1, false};
  return is_punctuation(c) ? CharKind{1, true} : CharKind{0, false};
}

CharKind word_kind(char32_t c) {
  if (is_word(c)) return {0, false};
  return {is_whitespace(c) ? -1 : 1, false};
}

class Split final : public PreTokenizer {
 public:
  explicit Split(const JsonFields& fields)
      : pattern_(read_pattern(fields)),
        behavior_(read_behavior(fields)),
        invert_(fields.flag("invert")) {}

  void pre_tokenize(Segment& segment) const override {
    std::vector<Span> matches;
    split_again(segment, behavior_, [&](std::string_view text, std::vector<Stretch>& stretches) {
      pattern_.find_all(text, matches);
      stretches_of(text, matches, invert_, stretches);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(const JsonFields& fields) : length_(fields.count_or("length", 5)) {
    if (length_ == 0) fields.refuse("length", "a length above 0");
  }

  void pre_tokenize(Segment& segment) const override {
    split_again(segment, SplitBehavior::kIsolated,
                [this](std::string_view text, std::vector<Stretch>& stretches) {
                  uint32_t begin = 0;
                  int64_t chars = 0;
                  for_each_char(text, [&](char32_t, size_t position) {
                    const auto at = static_cast<uint32_t>(position);
                    if (chars++ % length_ != 0 || at == 0) return;
                    stretches.push_back({{begin, at}, false});
                    begin = at;
                  });
                  stretches.push_back({{begin, static_cast<uint32_t>(text.size())}, false});
                });
  }

 private:
  int64_t length_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  PreTokenizerSequence(const JsonFields& fields, int depth) {
    size_t number = 0;
    for (const nlohmann::json& part : fields.list("pretokenizers")) {
      const std::string where =
          fields.place("pretokenizers") + '[' + std::to_string(number++) + ']';
      parts_.push_back(make_pre_tokenizer(part, where, depth + 1));
    }
  }
  void pre_tokenize(Segment& segment) const override {
    for (const auto& part : parts_) part->pre_tokenize(segment);
  }
  bool writes_bytes() const override { return !parts_.empty() && parts_.back()->writes_bytes(); }
  void leave_bytes() override { parts_.back()->leave_bytes(); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const nlohmann::json& json,
                                                 const std::string& where, int depth) {
  check_depth(depth, where);
  const JsonFields fields(json, where);
  const std::string type = fields.type();
  if (type == "BertPreTokenizer") return std::make_unique<ByKind<bert_kind>>();
  if (type == "Whitespace") return std::make_unique<ByKind<word_kind>>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<AtChars>(SplitBehavior::kRemoved, is_whitespace);
  }
  if (type == "Punctuation") {
    const auto behavior =
        fields.find("behavior") == nullptr ? SplitBehavior::kIsolated : read_behavior(fields);
    return std::make_unique<AtChars>(behavior, is_punctuation);
  }
  if (type == "Digits") {
    const auto behavior =
        fields.flag("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return std::make_unique<AtChars>(behavior, is_numeric);
  }
  if (type == "CharDelimiterSplit" || type == "Delimiter") {
    return std::make_unique<AtDelimiter>(fields.character("delimiter"));
  }
  if (type == "Split") return std::make_unique<Split>(fields);
  if (type == "FixedLength") return std::make_unique<FixedLength>(fields);
  if (type == "ByteLevel") return make_byte_level_pre_tokenizer(json, where);
  if (type == "Metaspace") return make_metaspace_pre_tokenizer(json, where);
  if (type == "UnicodeScripts") return make_scripts_pre_tokenizer(where);
  if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(fields, depth);
  refuse_type("pre_tokenizer", fields);
}

}  // namespace accelerate::tokenizers
