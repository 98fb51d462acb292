#include "transformers/tokenizers/pre_tokenizers/metaspace.h"

#include "transformers/tokenizers/pre_tokenizers/pre_tokenizers.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const Metaspace& settings)
      : settings_(settings), replacement_(utf8_of(settings.replacement)) {}

  void pre_tokenize(Segment& segment) const override {
    replace_spaces(segment);
    if (!settings_.split) return;
    split_again(segment, SplitBehavior::kMergedWithNext,
                [this](std::string_view text, std::vector<Stretch>& stretches) {
                  find_replacements(text, stretches);
                });
  }

 private:
  void replace_spaces(Segment& segment) const {
    AlignedTextBuilder builder(segment.text);
    const std::string& text = segment.text.text();
    for (Span& split : segment.splits) {
      const uint32_t begin = builder.size();
      const std::string_view piece = segment.text.view(split);
      const bool marked = piece.starts_with(' ') || piece.starts_with(replacement_);
      const bool wanted = settings_.prepend == PrependScheme::kAlways ||
                          (settings_.prepend == PrependScheme::kFirst &&
                           segment.text.source(split.begin).begin == 0);
      if (wanted && !marked) builder.append(replacement_, split.begin);
      uint32_t done = split.begin;
      for (uint32_t i = split.begin; i < split.end; ++i) {
        if (text[i] != ' ') continue;
        builder.copy({done, i});
        builder.append(replacement_, i);
        done = i + 1;
      }
      builder.copy({done, split.end});
      split = {begin, builder.size()};
    }
    segment.text = builder.take();
  }

  void find_replacements(std::string_view text, std::vector<Stretch>& stretches) const {
    size_t done = 0;
    const auto add = [&](size_t begin, size_t end, bool delimiter) {
      if (begin == end) return;
      stretches.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, delimiter});
    };
    for (size_t at = text.find(replacement_); at != std::string_view::npos;
         at = text.find(replacement_, done)) {
      add(done, at, false);
      done = at + replacement_.size();
      add(at, done, true);
    }
    add(done, text.size(), false);
  }

  Metaspace settings_;
  std::string replacement_;
};

}  // namespace

Metaspace read_metaspace(const JsonFields& fields) {
  Metaspace settings{.replacement = fields.character("replacement"),
                     .split = fields.flag_or("split", true)};
  const std::string scheme = fields.text_or("prepend_scheme", "always");
  if (scheme == "first") {
    settings.prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    settings.prepend = PrependScheme::kNever;
  } else if (scheme != "always") {
    fields.refuse("prepend_scheme", "first, never or always");
  }
  if (!fields.flag_or("add_prefix_space", true) && settings.prepend != PrependScheme::kNever) {
    fields.refuse("add_prefix_space", "true, because the prepend_scheme is always");
  }
  return settings;
}

std::unique_ptr<PreTokenizer> make_metaspace_pre_tokenizer(const nlohmann::json& json,
                                                           const std::string& where) {
  return std::make_unique<MetaspacePreTokenizer>(read_metaspace(JsonFields(json, where)));
}

}  // namespace accelerate::tokenizers
