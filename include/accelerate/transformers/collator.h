// How samples of text become a batch for a model: the collate function of a data_loader().
//
//   auto loader = accelerate::data_loader(samples, {.batch_size = 32, .shuffle = true},
//                                         DataCollatorWithPadding(tokenizer));
//   for (auto& batch : accelerator.prepare(loader)) loss = model(batch).loss;
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/tokenizers.h"
#include "accelerate/transformers/model.h"
#include "accelerate/transformers/pretrained_tokenizer.h"

namespace accelerate::transformers {

// The label of a sample: a class, a value, a list of either per token (or class), or none.
using TextLabel =
    std::variant<std::monostate, int64_t, double, std::vector<int64_t>, std::vector<float>>;

// A tokenized text. All lists but labels are as long as input_ids, or empty.
struct ACCELERATE_EXPORT TextSample {
  std::vector<int64_t> input_ids{};
  std::vector<int64_t> attention_mask{};  // empty: all ones
  std::vector<int64_t> token_type_ids{};
  std::vector<int64_t> special_tokens_mask{};
  TextLabel label{};
  // What the masks of DataCollatorForLanguageModeling are drawn from, beside the text.
  uint64_t random = 0;

  TextSample() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): encodings are samples without a label
  TextSample(Encoding encoding, TextLabel label = {});
};

// A dataset of texts that are tokenized on demand, with or without labels. Reads
// from any number of threads; copies share the texts.
class ACCELERATE_EXPORT TextDataset {
 public:
  // Texts are cut to what the model can take, or to max_length; padding is left to the collator.
  // Throws UsageError unless there are as many labels as texts, or none.
  TextDataset(PretrainedTokenizer tokenizer, std::vector<std::string> texts,
              std::vector<TextLabel> labels = {}, TextOptions options = {.truncation = true});
  // The same of pairs.
  TextDataset(PretrainedTokenizer tokenizer, std::vector<std::pair<std::string, std::string>> pairs,
              std::vector<TextLabel> labels = {}, TextOptions options = {.truncation = true});

  size_t size() const;
  // `random` of the sample comes from the generator, which a loader seeds by seed, epoch and index.
  TextSample get(size_t index, at::Generator& random) const;

 private:
  struct ACCELERATE_HIDDEN Texts;
  std::shared_ptr<const Texts> texts_;
};

struct CollatorOptions {
  // All batches get this length; a longer text is a DataError. Unset: that of the longest text.
  std::optional<int64_t> max_length{};
  int64_t pad_to_multiple_of = 0;           // 0: any length will do
  std::optional<TokenSide> padding_side{};  // unset: as the tokenizer has it
  int64_t label_pad = -100;                 // what the loss does not count
};

namespace detail {

// Pads texts; collators handle the labels.
class ACCELERATE_EXPORT TextPadder {
 public:
  TextPadder(const PretrainedTokenizer& tokenizer, CollatorOptions options);
  // input_ids, attention_mask and token_type_ids of all samples. Throws DataError if there is none
  // or a text is too long or its lists differ in length, UsageError without a pad token where one
  // is needed.
  ModelInputs pad(const std::vector<TextSample>& samples) const;
  // A list of numbers for each token, as long as the padded texts.
  at::Tensor pad_labels(const std::vector<TextSample>& samples, int64_t length) const;
  // The length that a batch gets whose longest list is `longest`.
  int64_t padded_length(int64_t longest) const;
  int64_t label_pad() const { return options_.label_pad; }

 private:
  CollatorOptions options_;
  std::optional<int64_t> pad_id_;
  int64_t pad_type_id_ = 0;
  bool has_token_type_ids_ = false;
  bool left_ = false;
};

}  // namespace detail

// All of them are functions of samples, or of Encodings, that return ModelInputs, depend on
// nothing else, and may be called from any number of threads. Errors are DataErrors that name the
// sample. They keep what they need of the tokenizer.

// Labels become a vector: integers as int64, others as float32; lists of equal length become
// rows.
class ACCELERATE_EXPORT DataCollatorWithPadding {
 public:
  explicit DataCollatorWithPadding(const PretrainedTokenizer& tokenizer,
                                   CollatorOptions options = {})
      : padder_(tokenizer, options) {}
  ModelInputs operator()(const std::vector<TextSample>& samples) const;
  ModelInputs operator()(const std::vector<Encoding>& encodings) const;

 private:
  detail::TextPadder padder_;
};

// Labels are a list of whole numbers, one for each token; padded like the texts. All samples of a
// batch have them, or none.
class ACCELERATE_EXPORT DataCollatorForTokenClassification {
 public:
  explicit DataCollatorForTokenClassification(const PretrainedTokenizer& tokenizer,
                                              CollatorOptions options = {})
      : padder_(tokenizer, options) {}
  ModelInputs operator()(const std::vector<TextSample>& samples) const;

 private:
  detail::TextPadder padder_;
};

// Labels are the tokens of another text, of any length: padded by themselves. All samples of a
// batch have them, or none.
class ACCELERATE_EXPORT DataCollatorForSeq2Seq {
 public:
  explicit DataCollatorForSeq2Seq(const PretrainedTokenizer& tokenizer,
                                  CollatorOptions options = {})
      : padder_(tokenizer, options) {}
  ModelInputs operator()(const std::vector<TextSample>& samples) const;

 private:
  detail::TextPadder padder_;
};

struct LanguageModelingOptions {
  // Masked language modelling: this share of the tokens that are not special is to be guessed. Of
  // these mask_replace become the mask token, random_replace any token, and the rest stays. Unset:
  // each token is to be guessed from those before it.
  std::optional<double> mlm_probability{};
  double mask_replace = 0.8;
  double random_replace = 0.1;
  // The choice is a function of this, of the text and of TextSample::random: the same on every rank
  // and with any number of workers.
  uint64_t seed = 0;
  CollatorOptions padding{};
};

// Labels are the texts themselves, without padding; see LanguageModelingOptions. Labels of the
// samples are ignored.
class ACCELERATE_EXPORT DataCollatorForLanguageModeling {
 public:
  // Throws UsageError for shares outside [0, 1] and for a tokenizer without a mask token where
  // one is needed.
  explicit DataCollatorForLanguageModeling(const PretrainedTokenizer& tokenizer,
                                           LanguageModelingOptions options = {});
  ModelInputs operator()(const std::vector<TextSample>& samples) const;
  ModelInputs operator()(const std::vector<Encoding>& encodings) const;

 private:
  // Masks the text and returns its labels.
  std::vector<int64_t> mask(TextSample& sample) const;

  detail::TextPadder padder_;
  LanguageModelingOptions options_;
  int64_t mask_id_ = 0;
  int64_t vocabulary_size_ = 0;
  std::vector<int64_t> special_ids_{};
};

}  // namespace accelerate::transformers
