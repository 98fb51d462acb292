#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/transformers/collator.h"
#include "transformers/text/text_tensors.h"

namespace accelerate::transformers::detail {
namespace {

constexpr const char* kPaddingCollator = "data collator";

void check_length(size_t sample, const char* list, size_t length, size_t expected) {
  if (length == 0 || length == expected) return;
  throw DataError({.what = "sample " + std::to_string(sample) + " has " + std::to_string(expected) +
                           " input_ids and " + std::to_string(length) + " of " + list,
                   .where = kPaddingCollator});
}

// Copies `list` to its place in a row of `length`, behind or before what pads it.
void copy_row(const std::vector<int64_t>& list, int64_t* row, int64_t length, bool left) {
  std::copy(list.begin(), list.end(),
            left ? row + length - static_cast<int64_t>(list.size()) : row);
}

}  // namespace

TextPadder::TextPadder(const PretrainedTokenizer& tokenizer, CollatorOptions options)
    : options_(options),
      pad_id_(tokenizer.pad_token_id()),
      pad_type_id_(tokenizer.pad_token_type_id()),
      has_token_type_ids_(tokenizer.has_token_type_ids()),
      left_(options.padding_side.value_or(tokenizer.padding_side()) == TokenSide::kLeft) {
  if (options.pad_to_multiple_of < 0 || options.max_length.value_or(1) <= 0) {
    throw UsageError({.what = "lengths are above 0",
                      .where = "CollatorOptions",
                      .hint = "leave pad_to_multiple_of at 0 where any length will do"});
  }
}

int64_t TextPadder::padded_length(int64_t longest) const {
  int64_t length = options_.max_length.value_or(longest);
  const int64_t multiple = options_.pad_to_multiple_of;
  if (multiple > 0) length = (length + multiple - 1) / multiple * multiple;
  return length;
}

ModelInputs TextPadder::pad(const std::vector<TextSample>& samples) const {
  if (samples.empty())
    throw DataError({.what = "a batch has no samples", .where = kPaddingCollator});
  size_t longest = 0;
  bool uneven = false;
  for (const TextSample& sample : samples) {
    longest = std::max(longest, sample.input_ids.size());
    uneven = uneven || sample.input_ids.size() != samples.front().input_ids.size();
  }
  const int64_t length = padded_length(static_cast<int64_t>(longest));
  const auto rows = static_cast<int64_t>(samples.size());
  if ((uneven || length > static_cast<int64_t>(longest)) && !pad_id_)
    throw_no_pad_token(kPaddingCollator);
  ModelInputs inputs{.input_ids = at::full({rows, length}, pad_id_.value_or(0), at::kLong),
                     .attention_mask = at::zeros({rows, length}, at::kLong)};
  if (has_token_type_ids_) {
    inputs.token_type_ids = at::full({rows, length}, pad_type_id_, at::kLong);
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const TextSample& sample = samples[i];
    const size_t size = sample.input_ids.size();
    if (static_cast<int64_t>(size) > length) {
      throw DataError({.what = "sample " + std::to_string(i) + " of a batch has " +
                               std::to_string(size) + " tokens, which is more than max_length, " +
                               std::to_string(length),
                       .where = kPaddingCollator,
                       .hint = "truncate when you tokenize: {.truncation = true, .max_length = " +
                               std::to_string(length) + "}"});
    }
    check_length(i, "attention_mask", sample.attention_mask.size(), size);
    check_length(i, "token_type_ids", sample.token_type_ids.size(), size);
    check_length(i, "special_tokens_mask", sample.special_tokens_mask.size(), size);
    const auto place = static_cast<int64_t>(i) * length;
    copy_row(sample.input_ids, inputs.input_ids.data_ptr<int64_t>() + place, length, left_);
    copy_row(sample.attention_mask.empty() ? std::vector<int64_t>(size, 1) : sample.attention_mask,
             inputs.attention_mask.data_ptr<int64_t>() + place, length, left_);
    if (has_token_type_ids_) {
      copy_row(
          sample.token_type_ids.empty() ? std::vector<int64_t>(size, 0) : sample.token_type_ids,
          inputs.token_type_ids.data_ptr<int64_t>() + place, length, left_);
    }
  }
  return inputs;
}

at::Tensor TextPadder::pad_labels(const std::vector<TextSample>& samples, int64_t length) const {
  const auto rows = static_cast<int64_t>(samples.size());
  at::Tensor labels = at::full({rows, length}, options_.label_pad, at::kLong);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto* list = std::get_if<std::vector<int64_t>>(&samples[i].label);
    if (list == nullptr) {
      throw DataError({.what = "sample " + std::to_string(i) +
                               " of a batch has no list of whole numbers as its label",
                       .where = kPaddingCollator});
    }
    if (static_cast<int64_t>(list->size()) > length) {
      throw DataError({.what = "sample " + std::to_string(i) + " of a batch has " +
                               std::to_string(list->size()) + " labels for " +
                               std::to_string(length) + " tokens",
                       .where = kPaddingCollator});
    }
    copy_row(*list, labels.data_ptr<int64_t>() + static_cast<int64_t>(i) * length, length, left_);
  }
  return labels;
}

}  // namespace accelerate::transformers::detail
