#include <ATen/ATen.h>

#include <algorithm>

#include "accelerate/errors.h"
#include "accelerate/transformers/collator.h"
#include "base/split_mix.h"

namespace accelerate::transformers {
namespace {

int64_t below(SplitMix& numbers, int64_t bound) {
  return static_cast<int64_t>(numbers.next() % static_cast<uint64_t>(bound));
}

uint64_t seed_of(uint64_t seed, const TextSample& sample) {
  uint64_t mixed = SplitMix(seed ^ SplitMix(sample.random).next()).next();
  for (const int64_t id : sample.input_ids) {
    mixed = SplitMix(mixed ^ static_cast<uint64_t>(id)).next();
  }
  return mixed;
}

bool is_share(double value) { return value >= 0 && value <= 1; }

}  // namespace

DataCollatorForLanguageModeling::DataCollatorForLanguageModeling(
    const PretrainedTokenizer& tokenizer, LanguageModelingOptions options)
    : padder_(tokenizer, options.padding), options_(options) {
  if (!options.mlm_probability) return;
  if (!is_share(*options.mlm_probability) || !is_share(options.mask_replace) ||
      !is_share(options.random_replace) || options.mask_replace + options.random_replace > 1) {
    throw UsageError({.what = "mlm_probability, mask_replace and random_replace are shares from 0 "
                              "to 1, the latter two at most 1 together",
                      .where = "LanguageModelingOptions"});
  }
  if (!tokenizer.mask_token_id()) {
    throw UsageError({.what = "the tokenizer has no mask token",
                      .where = "LanguageModelingOptions::mlm_probability",
                      .hint = "leave it unset to train a model that continues texts"});
  }
  mask_id_ = *tokenizer.mask_token_id();
  vocabulary_size_ = tokenizer.size();
  special_ids_ = tokenizer.special_token_ids();
}

std::vector<int64_t> DataCollatorForLanguageModeling::mask(TextSample& sample) const {
  std::vector<int64_t> labels(sample.input_ids.size(), padder_.label_pad());
  SplitMix numbers(seed_of(options_.seed, sample));
  for (size_t i = 0; i < sample.input_ids.size(); ++i) {
    int64_t& id = sample.input_ids[i];
    const bool special = sample.special_tokens_mask.empty()
                             ? std::binary_search(special_ids_.begin(), special_ids_.end(), id)
                             : sample.special_tokens_mask[i] != 0;
    const bool padding = !sample.attention_mask.empty() && sample.attention_mask[i] == 0;
    if (special || padding || numbers.share() >= *options_.mlm_probability) continue;
    labels[i] = id;
    const double choice = numbers.share();
    if (choice < options_.mask_replace) {
      id = mask_id_;
    } else if (choice < options_.mask_replace + options_.random_replace) {
      id = below(numbers, vocabulary_size_);
    }
  }
  return labels;
}

ModelInputs DataCollatorForLanguageModeling::operator()(
    const std::vector<TextSample>& samples) const {
  if (!options_.mlm_probability) {
    ModelInputs inputs = padder_.pad(samples);
    inputs.labels = inputs.input_ids.masked_fill(inputs.attention_mask.eq(0), padder_.label_pad());
    return inputs;
  }
  std::vector<TextSample> masked = samples;
  for (TextSample& sample : masked) {
    const auto fits = [&](const std::vector<int64_t>& list) {
      return list.empty() || list.size() == sample.input_ids.size();
    };
    // Lists that do not fit are refused by the padding below.
    if (fits(sample.attention_mask) && fits(sample.special_tokens_mask)) {
      sample.label = mask(sample);
    }
  }
  ModelInputs inputs = padder_.pad(masked);
  inputs.labels = padder_.pad_labels(masked, inputs.input_ids.size(1));
  return inputs;
}

}  // namespace accelerate::transformers
