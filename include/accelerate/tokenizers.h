// Texts to ids and back, from the files of a Hugging Face tokenizer. Needs no libtorch: the library
// is the CMake target accelerate_tokenizers.
//
//   auto tokenizer = Tokenizer::from_file("model/tokenizer.json");
//   Encoding encoding = tokenizer.encode("The weather is fine.");
//   encoding.ids;                            // what the model wants
//   tokenizer.decode(encoding.ids);          // "the weather is fine."
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// Code points [begin, end) of the text that a token comes from.
struct TokenOffsets {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const TokenOffsets&, const TokenOffsets&) = default;
};

// The tokens of a text or of a pair. All lists have one entry per token.
struct Encoding {
  std::vector<int64_t> ids{};
  std::vector<int64_t> type_ids{};             // which of the two texts, as the model wants it
  std::vector<int64_t> attention_mask{};       // 0: padding
  std::vector<int64_t> special_tokens_mask{};  // 1: added around the text, padding included
  std::vector<std::string> tokens{};
  std::vector<TokenOffsets> offsets{};  // in the text or its pair; {0, 0} for special tokens
  std::vector<int64_t> word_ids{};      // the piece of the text that the token is a part of; -1
  std::vector<int64_t> sequence_ids{};  // 0 the text, 1 its pair, -1 neither
  // What was cut off, in further windows of the same length.
  std::vector<Encoding> overflowing{};

  size_t size() const { return ids.size(); }
};

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };
enum class TokenSide { kLeft, kRight };

struct TruncationOptions {
  int64_t max_length = 512;  // special tokens included
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  int64_t stride = 0;  // tokens that a window repeats from the one before
  TokenSide direction = TokenSide::kRight;
};

struct PaddingOptions {
  std::optional<int64_t> length{};  // none: that of the longest of a batch
  TokenSide direction = TokenSide::kRight;
  int64_t pad_to_multiple_of = 0;  // 0: any length will do
  int64_t pad_id = 0;
  int64_t pad_type_id = 0;
  std::string pad_token = "[PAD]";
};

struct EncodeOptions {
  bool add_special_tokens = true;
  // The tokenizer's own settings where they are not given here.
  std::optional<TruncationOptions> truncation{};
  std::optional<PaddingOptions> padding{};
};

struct BatchOptions {
  EncodeOptions encode{};
  int threads = 0;  // 0: one per core
};

struct DecodeOptions {
  bool skip_special_tokens = true;
};

// A text, or a text and its pair. Refers to texts that outlive the call.
struct TextPair {
  TextPair(std::string_view text) : text(text) {}    // NOLINT(google-explicit-constructor)
  TextPair(const std::string& text) : text(text) {}  // NOLINT(google-explicit-constructor)
  TextPair(const char* text) : text(text) {}         // NOLINT(google-explicit-constructor)
  TextPair(std::string_view text, std::optional<std::string_view> pair) : text(text), pair(pair) {}

  std::string_view text;
  std::optional<std::string_view> pair{};
};

// A word that is always one token.
struct AddedToken {
  std::string content{};
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // and those behind
  bool normalized = true;    // is looked for in the normalized text
  bool special = false;      // left out by decode() on demand
};

// Results are those of the Hugging Face library "tokenizers". Copies share what they read; const
// calls are safe from any number of threads at once.
//
// Texts are UTF-8: encode() throws DataError for other bytes. decode() skips ids that are not
// in the vocabulary.
class ACCELERATE_EXPORT Tokenizer {
 public:
  // A tokenizer.json. Throws DataError, which names the file and the place in it, if it is
  // missing, damaged or holds a component that is not known.
  static Tokenizer from_file(const std::filesystem::path& file);
  // The text of such a file; `name` stands for it in messages.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");
  // The folder of a model: its tokenizer.json; else vocab.txt as of BERT, or vocab.json and
  // merges.txt as of GPT-2.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view pair,
                  const EncodeOptions& options = {}) const;
  // A text that is already split into words: word_ids count them, offsets restart in each.
  Encoding encode_words(std::span<const std::string> words,
                        const EncodeOptions& options = {}) const;
  // All of `texts`, padded together, in order. Blocks until all is done; the first error of any
  // text is thrown.
  std::vector<Encoding> encode_batch(std::span<const TextPair> texts,
                                     const BatchOptions& options = {}) const;

  std::string decode(std::span<const int64_t> ids, const DecodeOptions& options = {}) const;
  std::vector<std::string> decode_batch(std::span<const std::vector<int64_t>> ids,
                                        const DecodeOptions& options = {}) const;

  // The normalized text, before it is split.
  std::string normalize(std::string_view text) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  size_t vocabulary_size(bool with_added_tokens = true) const;
  // As the file names it: "BPE", "WordPiece", "Unigram" or "WordLevel"; "" where it does not.
  const std::string& model_type() const;
  // Those of the file and those that were added since, in this order.
  const std::vector<AddedToken>& added_tokens() const;
  // How many special tokens encode() adds to one text, or to a pair.
  int64_t special_tokens_to_add(bool pair = false) const;

  // The settings that encode() uses where a call names none; those of the file to begin with.
  // Not thread-safe.
  const std::optional<TruncationOptions>& truncation() const { return truncation_; }
  const std::optional<PaddingOptions>& padding() const { return padding_; }
  // Throws UsageError if a window could not go on: the stride is not below its length.
  void set_truncation(std::optional<TruncationOptions> truncation);
  // Throws UsageError for negative numbers.
  void set_padding(std::optional<PaddingOptions> padding);

  // Adds to the vocabulary of this object, not of its copies. Returns how many were new. Not
  // thread-safe.
  int64_t add_tokens(std::span<const AddedToken> tokens);

 private:
  struct ACCELERATE_HIDDEN Parts;
  struct ACCELERATE_HIDDEN Loader;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  Encoding encode_pair(const TextPair& texts, const EncodeOptions& options, bool pad) const;
  Encoding finish(Encoding first, std::optional<Encoding> second, const EncodeOptions& options,
                  bool pad) const;
  void pad_together(std::span<Encoding> encodings, const EncodeOptions& options) const;

  std::shared_ptr<const Parts> parts_;
  std::optional<TruncationOptions> truncation_{};
  std::optional<PaddingOptions> padding_{};
};

}  // namespace accelerate
