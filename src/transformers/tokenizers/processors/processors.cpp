#include "transformers/tokenizers/processors/processors.h"

#include <algorithm>

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/text/byte_level.h"
#include "transformers/tokenizers/text/encodings.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

struct NamedId {
  std::string token{};
  int64_t id = 0;
};

NamedId read_named_id(const JsonFields& fields, std::string_view name) {
  const nlohmann::json& pair = fields.list(name);
  if (pair.size() != 2) fields.refuse(name, "a token and its id");
  return {text_of(pair[0], fields.place(name)), id_of(pair[1], fields.place(name))};
}

bool is_byte_space(char32_t c) { return c == byte_alphabet().chars[' '] || is_whitespace(c); }

// Leaves the spaces at the ends of tokens out of their offsets.
void trim_offsets(Encoding& encoding, bool add_prefix_space) {
  for (size_t i = 0; i < encoding.size(); ++i) {
    const std::string& token = encoding.tokens[i];
    int64_t leading = 0;
    int64_t spaces = 0;  // since the last character that is none
    bool only_spaces = true;
    for_each_char(token, [&](char32_t c, size_t) {
      const bool space = is_byte_space(c);
      spaces = space ? spaces + 1 : 0;
      only_spaces = only_spaces && space;
      if (only_spaces) ++leading;
    });
    TokenOffsets& offsets = encoding.offsets[i];
    if (leading > 0) {
      // One space at the very beginning was put there by the tokenizer: nothing to trim.
      const bool first = i == 0 || offsets.begin == 0;
      if (first && add_prefix_space && leading == 1) leading = 0;
      offsets.begin = std::min(offsets.begin + leading, offsets.end);
    }
    if (spaces > 0 && offsets.end >= spaces) {
      offsets.end = std::max(offsets.end - spaces, offsets.begin);
    }
  }
}

void trim_all_offsets(std::vector<Encoding>& encodings, bool add_prefix_space) {
  for (Encoding& encoding : encodings) {
    trim_offsets(encoding, add_prefix_space);
    for (Encoding& window : encoding.overflowing) trim_offsets(window, add_prefix_space);
  }
}

// Applies `change` to the encoding and to each of its windows by itself.
template <typename Change>
void change_windows(Encoding& encoding, Change change) {
  std::vector<Encoding> windows = std::exchange(encoding.overflowing, {});
  change(encoding);
  for (Encoding& window : windows) change(window);
  encoding.overflowing = std::move(windows);
}

Encoding between(const NamedId* before, Encoding encoding, const NamedId& behind, int64_t type_id) {
  Encoding result;
  reserve(result, encoding.size() + 2);
  if (before != nullptr) append_special(result, before->token, before->id, type_id);
  append(result, std::move(encoding));
  append_special(result, behind.token, behind.id, type_id);
  return result;
}

// The masks begin anew: what was special before is text now.
void forget_special(Encoding& encoding, int64_t sequence) {
  std::ranges::fill(encoding.special_tokens_mask, 0);
  std::ranges::fill(encoding.attention_mask, 1);
  std::ranges::fill(encoding.sequence_ids, sequence);
}

class BertProcessing final : public Processor {
 public:
  explicit BertProcessing(const JsonFields& fields)
      : sep_(read_named_id(fields, "sep")), cls_(read_named_id(fields, "cls")) {}

  int64_t added_tokens(bool pair) const override { return pair ? 3 : 2; }

  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (!add_special_tokens) return encodings;
    for (size_t i = 0; i < encodings.size(); ++i) {
      change_windows(encodings[i], [&](Encoding& encoding) {
        forget_special(encoding, i == 0 ? 0 : 1);
        encoding = between(i == 0 ? &cls_ : nullptr, std::move(encoding), sep_, i == 0 ? 0 : 1);
      });
    }
    return encodings;
  }

 private:
  NamedId sep_;
  NamedId cls_;
};

class RobertaProcessing final : public Processor {
 public:
  explicit RobertaProcessing(const JsonFields& fields)
      : sep_(read_named_id(fields, "sep")),
        cls_(read_named_id(fields, "cls")),
        trim_offsets_(fields.flag("trim_offsets")),
        add_prefix_space_(fields.flag("add_prefix_space")) {}

  int64_t added_tokens(bool pair) const override { return pair ? 4 : 2; }

  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (trim_offsets_) trim_all_offsets(encodings, add_prefix_space_);
    for (Encoding& encoding : encodings) std::ranges::fill(encoding.type_ids, 0);
    if (!add_special_tokens) return encodings;
    for (size_t i = 0; i < encodings.size(); ++i) {
      change_windows(encodings[i], [&](Encoding& encoding) {
        forget_special(encoding, i == 0 ? 0 : 1);
        std::ranges::fill(encoding.type_ids, 0);
        encoding = between(i == 0 ? &cls_ : &sep_, std::move(encoding), sep_, 0);
      });
    }
    return encodings;
  }

 private:
  NamedId sep_;
  NamedId cls_;
  bool trim_offsets_;
  bool add_prefix_space_;
};

class ByteLevelProcessing final : public Processor {
 public:
  explicit ByteLevelProcessing(const JsonFields& fields)
      : trim_offsets_(fields.flag("trim_offsets")),
        add_prefix_space_(fields.flag("add_prefix_space")) {}

  int64_t added_tokens(bool /*pair*/) const override { return 0; }

  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool /*add_special_tokens*/) const override {
    if (trim_offsets_) trim_all_offsets(encodings, add_prefix_space_);
    for (size_t i = 0; i < encodings.size(); ++i) {
      std::ranges::fill(encodings[i].sequence_ids, static_cast<int64_t>(i));
    }
    return encodings;
  }

 private:
  bool trim_offsets_;
  bool add_prefix_space_;
};

class ProcessorSequence final : public Processor {
 public:
  ProcessorSequence(const JsonFields& fields, int depth) {
    size_t number = 0;
    for (const nlohmann::json& part : fields.list("processors")) {
      const std::string where = fields.place("processors") + '[' + std::to_string(number++) + ']';
      parts_.push_back(make_processor(part, where, depth + 1));
    }
  }

  int64_t added_tokens(bool pair) const override {
    int64_t sum = 0;
    for (const auto& part : parts_) sum += part->added_tokens(pair);
    return sum;
  }

  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    for (const auto& part : parts_) {
      encodings = part->process(std::move(encodings), add_special_tokens);
    }
    return encodings;
  }

 private:
  std::vector<std::unique_ptr<const Processor>> parts_;
};

}  // namespace

std::unique_ptr<const Processor> make_processor(const nlohmann::json& json,
                                                const std::string& where, int depth) {
  check_depth(depth, where);
  const JsonFields fields(json, where);
  const std::string type = fields.type();
  if (type == "BertProcessing") return std::make_unique<BertProcessing>(fields);
  if (type == "RobertaProcessing") return std::make_unique<RobertaProcessing>(fields);
  if (type == "ByteLevel") return std::make_unique<ByteLevelProcessing>(fields);
  if (type == "TemplateProcessing") return make_template_processor(json, where);
  if (type == "Sequence") return std::make_unique<ProcessorSequence>(fields, depth);
  refuse_type("post_processor", fields);
}

Encoding process_texts(const Processor* processor, Encoding first, std::optional<Encoding> second,
                       bool add_special_tokens) {
  std::vector<Encoding> encodings;
  encodings.push_back(std::move(first));
  if (second) encodings.push_back(std::move(*second));
  if (processor != nullptr) {
    for (size_t i = 0; i < encodings.size(); ++i) {
      // The windows of a pair that were cut off keep the type that they were made with.
      std::ranges::fill(encodings[i].type_ids, static_cast<int64_t>(i));
    }
    encodings = processor->process(std::move(encodings), add_special_tokens);
  }
  Encoding result;
  size_t size = 0;
  for (const Encoding& encoding : encodings) size += encoding.size();
  if (encodings.size() > 1) reserve(result, size);
  for (Encoding& encoding : encodings) append(result, std::move(encoding));
  return result;
}

}  // namespace accelerate::tokenizers
