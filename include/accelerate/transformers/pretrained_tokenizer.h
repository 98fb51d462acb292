// The tokenizer of a checkpoint: texts as a model's inputs, and back.
//
//   auto tokenizer = AutoTokenizer::from_pretrained("folder");
//   ModelInputs inputs = tokenizer({"The weather is fine.", "So it is."}, {.truncation = true});
//   std::string text = tokenizer.decode(inputs.input_ids[0]);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/tokenizers.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

enum class Padding {
  kNone,
  kLongest,    // to the longest text of the batch
  kMaxLength,  // to max_length
};

struct TextOptions {
  bool add_special_tokens = true;
  // Unset: kLongest where the result is tensors, else kNone.
  std::optional<Padding> padding{};
  bool truncation = false;
  // Of truncation and of Padding::kMaxLength, special tokens included. Unset: what the model can
  // take; without such a limit nothing is cut off, nor filled up.
  std::optional<int64_t> max_length{};
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  int64_t stride = 0;  // tokens that each of Encoding::overflowing repeats
  int64_t pad_to_multiple_of = 0;
  std::optional<TokenSide> padding_side{};  // unset: as the tokenizer has it
  int threads = 0;                          // 0: one per core
};

// Special tokens; empty if the tokenizer has none of the kind.
struct SpecialTokens {
  std::optional<std::string> bos{}, eos{}, unk{}, sep{}, pad{}, cls{}, mask{};
  std::vector<std::string> additional{};
};

// An accelerate::Tokenizer with what tokenizer_config.json and special_tokens_map.json say beside
// it; without them, what the kind of model implies. Results are those of the tokenizers of
// Hugging Face's transformers. Settings for truncation and padding inside of tokenizer.json are
// not used, but kept when it is saved.
//
// A value: copies share what they read. Const calls are safe from any number of threads.
class ACCELERATE_EXPORT PretrainedTokenizer {
 public:
  // The tokenizer of a folder, or of a name on the Hugging Face hub that is in the local cache: see
  // find_pretrained(). Throws DataError that names the file and the place in it if one is missing
  // or damaged.
  static PretrainedTokenizer from_pretrained(const std::string& name_or_folder,
                                             const std::string& revision = "main");

  // One text, a pair, or a batch of either as tensors [texts, tokens]. Throws DataError if texts
  // have different lengths and Padding::kNone was asked for, UsageError where padding is needed
  // and there is no pad token.
  ModelInputs operator()(const TextPair& text, const TextOptions& options = {}) const;
  ModelInputs operator()(std::string_view text, std::string_view pair,
                         const TextOptions& options = {}) const;
  ModelInputs operator()(std::span<const TextPair> texts, const TextOptions& options = {}) const;
  ModelInputs operator()(std::initializer_list<TextPair> texts,
                         const TextOptions& options = {}) const;
  ModelInputs operator()(std::span<const std::string> texts, const TextOptions& options = {}) const;

  // The same with all details of each token.
  Encoding encode(const TextPair& text, const TextOptions& options = {}) const;
  Encoding encode_words(std::span<const std::string> words, const TextOptions& options = {}) const;
  std::vector<Encoding> encode_batch(std::span<const TextPair> texts,
                                     const TextOptions& options = {}) const;
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const TextOptions& options = {}) const;

  // Encodings as tensors, padded as encode_batch() would have done.
  ModelInputs pad(std::span<const Encoding> encodings, const TextOptions& options = {}) const;

  // A text from ids; a tensor has one dimension, or two where it is a batch. As in Python special
  // tokens stay in the text unless told otherwise.
  std::string decode(std::span<const int64_t> ids, const DecodeOptions& options = kAll) const;
  std::string decode(const at::Tensor& ids, const DecodeOptions& options = kAll) const;
  std::vector<std::string> batch_decode(const at::Tensor& ids,
                                        const DecodeOptions& options = kAll) const;
  static constexpr DecodeOptions kAll{.skip_special_tokens = false};

  const SpecialTokens& special_tokens() const { return special_; }
  std::optional<int64_t> bos_token_id() const { return id_of(special_.bos); }
  std::optional<int64_t> eos_token_id() const { return id_of(special_.eos); }
  std::optional<int64_t> unk_token_id() const { return id_of(special_.unk); }
  std::optional<int64_t> sep_token_id() const { return id_of(special_.sep); }
  std::optional<int64_t> pad_token_id() const { return id_of(special_.pad); }
  std::optional<int64_t> cls_token_id() const { return id_of(special_.cls); }
  std::optional<int64_t> mask_token_id() const { return id_of(special_.mask); }
  // Of all of them, each once, sorted.
  std::vector<int64_t> special_token_ids() const;
  // Throws UsageError if the vocabulary does not have it: add_tokens() first.
  void set_pad_token(const std::string& token);

  TokenSide padding_side() const { return padding_side_; }
  void set_padding_side(TokenSide side) { padding_side_ = side; }
  TokenSide truncation_side() const { return truncation_side_; }
  void set_truncation_side(TokenSide side) { truncation_side_ = side; }
  // Unset: any length will do.
  std::optional<int64_t> model_max_length() const { return model_max_length_; }
  void set_model_max_length(std::optional<int64_t> length);
  // Whether the model needs to know which of two texts a token belongs to.
  bool has_token_type_ids() const { return has_token_type_ids_; }
  int64_t pad_token_type_id() const { return pad_token_type_id_; }
  // Tokens, added ones included: ids are below it in all but odd vocabularies.
  int64_t size() const { return static_cast<int64_t>(tokenizer_.vocabulary_size()); }

  // Adds to the vocabulary of this object. Returns how many were new.
  int64_t add_tokens(std::span<const AddedToken> tokens);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Writes tokenizer.json and tokenizer_config.json, and the other files of the tokenizer that were
  // read, into `folder`, which is created if it does not exist. With save_pretrained() of a model
  // beside, from_pretrained() of both takes the folder, and so does Python. Throws CheckpointError
  // if writing fails.
  void save_pretrained(const std::filesystem::path& folder) const;

 private:
  struct ACCELERATE_HIDDEN Loader;
  // The files as they were read.
  struct ACCELERATE_HIDDEN Files;

  explicit PretrainedTokenizer(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::optional<int64_t> id_of(const std::optional<std::string>& token) const;
  std::optional<PaddingOptions> padding_of(const TextOptions& options, Padding unset) const;
  EncodeOptions encode_options(const TextOptions& options) const;
  std::string clean_up(std::string text) const;

  Tokenizer tokenizer_;
  std::shared_ptr<const Files> files_{};
  std::vector<AddedToken> added_{};
  SpecialTokens special_{};
  TokenSide padding_side_ = TokenSide::kRight;
  TokenSide truncation_side_ = TokenSide::kRight;
  std::optional<int64_t> model_max_length_{};
  int64_t pad_token_type_id_ = 0;
  bool has_token_type_ids_ = false;
  bool cleans_up_spaces_ = false;
};

using AutoTokenizer = PretrainedTokenizer;

}  // namespace accelerate::transformers
