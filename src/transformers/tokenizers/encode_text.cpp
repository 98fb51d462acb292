#include "transformers/tokenizers/encode_text.h"

#include "accelerate/errors.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

// Positions are 32 bits, also of a text that has grown.
constexpr size_t kLongestText = size_t{1} << 25;

// Bytes of the original text to code points.
class CharPositions {
 public:
  explicit CharPositions(std::string_view text) : size_(text.size()) {
    if (is_ascii(text)) return;
    chars_.reserve(text.size());
    uint32_t number = 0;
    for (size_t i = 0; i < text.size(); ++number) {
      const uint32_t bytes = utf8_length(text[i]);
      chars_.insert(chars_.end(), bytes, number);
      i += bytes;
    }
  }

  TokenOffsets convert(Span span) const {
    if (chars_.empty() || span.begin >= size_) return {span.begin, span.end};
    const int64_t begin = chars_[span.begin];
    if (span.end < size_) return {begin, chars_[span.end]};
    return {begin, int64_t{chars_[size_ - 1]} + 1};
  }

 private:
  size_t size_;
  std::vector<uint32_t> chars_;  // of each byte; none for ASCII
};

}  // namespace

void check_text(std::string_view text) {
  if (text.size() > kLongestText) {
    throw DataError({.what = "a text of " + std::to_string(text.size()) + " bytes is too long",
                     .hint = "encode it in parts of at most 32 MiB"});
  }
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return;
  throw DataError({.what = "a text is not valid UTF-8 at byte " + std::to_string(invalid)});
}

Encoding encode_text(std::string_view text, int64_t sequence, std::optional<int64_t> word_id,
                     const Normalizer* normalizer, const PreTokenizer* pre_tokenizer,
                     const Model& model, const AddedTokens& added, Workspace& workspace) {
  check_text(text);
  Encoding encoding;
  const CharPositions positions(text);
  const size_t expected = text.size() / 4 + 4;
  encoding.ids.reserve(expected);
  encoding.tokens.reserve(expected);
  encoding.offsets.reserve(expected);
  encoding.word_ids.reserve(expected);
  int64_t word = 0;
  const auto push = [&](uint32_t id, std::string_view token, TokenOffsets offsets) {
    encoding.ids.push_back(id);
    encoding.tokens.emplace_back(token);
    encoding.offsets.push_back(offsets);
    encoding.word_ids.push_back(word_id.value_or(word));
  };
  std::vector<Piece> pieces;
  for (Segment& segment : added.extract(text, normalizer)) {
    if (segment.added_token) {
      push(*segment.added_token, segment.text.text(),
           positions.convert(segment.text.source_of(segment.text.whole())));
      ++word;
      continue;
    }
    if (pre_tokenizer != nullptr) pre_tokenizer->pre_tokenize(segment);
    for (const Span split : segment.splits) {
      const std::string_view view = segment.text.view(split);
      pieces.clear();
      model.tokenize(view, workspace, pieces);
      for (const Piece& piece : pieces) {
        // Tokens for more than there is in the text have no place in it.
        const bool inside = piece.end <= view.size();
        const Span bytes =
            inside ? segment.text.source_of({split.begin + piece.begin, split.begin + piece.end})
                   : Span{piece.begin, piece.end};
        const std::string_view token = piece.surface
                                           ? view.substr(piece.begin, piece.end - piece.begin)
                                           : model.token(piece.id).value_or("");
        push(piece.id, token, positions.convert(bytes));
      }
      ++word;
    }
  }
  encoding.type_ids.assign(encoding.size(), sequence);
  encoding.attention_mask.assign(encoding.size(), 1);
  encoding.special_tokens_mask.assign(encoding.size(), 0);
  encoding.sequence_ids.assign(encoding.size(), sequence);
  return encoding;
}

}  // namespace accelerate::tokenizers
