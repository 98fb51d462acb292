#include <algorithm>

#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/pattern/pattern.h"
#include "transformers/tokenizers/pre_tokenizers/pre_tokenizers.h"
#include "transformers/tokenizers/text/byte_level.h"

namespace accelerate::tokenizers {
namespace {

// Words with the space before them, numbers, the rest, and spaces, as GPT-2 splits.
constexpr std::string_view kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const JsonFields& fields)
      : words_(Pattern::expression(kWords, fields.where())),
        add_prefix_space_(fields.flag("add_prefix_space")),
        use_regex_(fields.flag_or("use_regex", true)) {
    static_cast<void>(fields.flag("trim_offsets"));
  }

  bool writes_bytes() const override { return true; }
  void leave_bytes() override { leave_bytes_ = true; }

  void pre_tokenize(Segment& segment) const override {
    if (add_prefix_space_) add_spaces(segment);
    if (use_regex_) {
      std::vector<Span> matches;
      split_again(segment, SplitBehavior::kIsolated,
                  [&](std::string_view text, std::vector<Stretch>& stretches) {
                    words_.find_all(text, matches);
                    stretches_of(text, matches, false, stretches);
                  });
    }
    if (!leave_bytes_) write_bytes(segment);
  }

 private:
  static void add_spaces(Segment& segment) {
    const auto has_space = [&](Span split) { return segment.text.text()[split.begin] == ' '; };
    if (std::ranges::all_of(segment.splits, has_space)) return;
    AlignedTextBuilder builder(segment.text);
    for (Span& split : segment.splits) {
      const uint32_t begin = builder.size();
      if (!has_space(split)) builder.append(" ", split.begin);
      builder.copy(split);
      split = {begin, builder.size()};
    }
    segment.text = builder.take();
  }

  static void write_bytes(Segment& segment) {
    AlignedTextBuilder builder(segment.text);
    for (Span& split : segment.splits) {
      const uint32_t begin = builder.size();
      for (uint32_t i = split.begin; i < split.end; ++i) {
        builder.append(byte_alphabet().utf8[static_cast<unsigned char>(segment.text.text()[i])], i);
      }
      split = {begin, builder.size()};
    }
    segment.text = builder.take();
  }

  Pattern words_;
  bool add_prefix_space_;
  bool use_regex_;
  bool leave_bytes_ = false;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_byte_level_pre_tokenizer(const nlohmann::json& json,
                                                            const std::string& where) {
  return std::make_unique<ByteLevel>(JsonFields(json, where));
}

}  // namespace accelerate::tokenizers
