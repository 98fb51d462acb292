#include "accelerate/transformers/collator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <type_traits>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

constexpr const char* kCollator = "data collator";

[[noreturn]] void refuse_labels(size_t sample) {
  throw DataError({.what = "samples 0 and " + std::to_string(sample) +
                           " of a batch differ in the kind or number of their labels",
                   .where = kCollator,
                   .hint = "labels for each token need DataCollatorForTokenClassification"});
}

template <class Label, class Element>
at::Tensor stack_numbers(const std::vector<TextSample>& samples, at::ScalarType dtype) {
  at::Tensor labels = at::empty({static_cast<int64_t>(samples.size())}, dtype);
  auto* out = labels.data_ptr<Element>();
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto* label = std::get_if<Label>(&samples[i].label);
    if (label == nullptr) refuse_labels(i);
    *out++ = static_cast<Element>(*label);
  }
  return labels;
}

template <class Element>
at::Tensor stack_lists(const std::vector<TextSample>& samples, at::ScalarType dtype) {
  using List = std::vector<Element>;
  const size_t length = std::get<List>(samples.front().label).size();
  at::Tensor labels =
      at::empty({static_cast<int64_t>(samples.size()), static_cast<int64_t>(length)}, dtype);
  auto* out = labels.data_ptr<Element>();
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto* list = std::get_if<List>(&samples[i].label);
    if (list == nullptr || list->size() != length) refuse_labels(i);
    out = std::copy(list->begin(), list->end(), out);
  }
  return labels;
}

at::Tensor stack_labels(const std::vector<TextSample>& samples) {
  return std::visit(
      [&](const auto& first) -> at::Tensor {
        using Label = std::remove_cvref_t<decltype(first)>;
        if constexpr (std::is_same_v<Label, int64_t>) {
          return stack_numbers<int64_t, int64_t>(samples, at::kLong);
        } else if constexpr (std::is_same_v<Label, double>) {
          return stack_numbers<double, float>(samples, at::kFloat);
        } else if constexpr (std::is_same_v<Label, std::vector<int64_t>>) {
          return stack_lists<int64_t>(samples, at::kLong);
        } else if constexpr (std::is_same_v<Label, std::vector<float>>) {
          return stack_lists<float>(samples, at::kFloat);
        } else {
          for (size_t i = 0; i < samples.size(); ++i) {
            if (!std::holds_alternative<std::monostate>(samples[i].label)) refuse_labels(i);
          }
          return {};
        }
      },
      samples.front().label);
}

bool has_labels(const std::vector<TextSample>& samples) {
  return std::any_of(samples.begin(), samples.end(), [](const TextSample& sample) {
    return !std::holds_alternative<std::monostate>(sample.label);
  });
}

std::vector<TextSample> samples_of(const std::vector<Encoding>& encodings) {
  std::vector<TextSample> samples;
  samples.reserve(encodings.size());
  for (const Encoding& encoding : encodings) samples.emplace_back(encoding);
  return samples;
}

}  // namespace

TextSample::TextSample(Encoding encoding, TextLabel label)
    : input_ids(std::move(encoding.ids)),
      attention_mask(std::move(encoding.attention_mask)),
      token_type_ids(std::move(encoding.type_ids)),
      special_tokens_mask(std::move(encoding.special_tokens_mask)),
      label(std::move(label)) {}

ModelInputs DataCollatorWithPadding::operator()(const std::vector<TextSample>& samples) const {
  ModelInputs inputs = padder_.pad(samples);
  inputs.labels = stack_labels(samples);
  return inputs;
}

ModelInputs DataCollatorWithPadding::operator()(const std::vector<Encoding>& encodings) const {
  return (*this)(samples_of(encodings));
}

ModelInputs DataCollatorForTokenClassification::operator()(
    const std::vector<TextSample>& samples) const {
  ModelInputs inputs = padder_.pad(samples);
  if (!has_labels(samples)) return inputs;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto* list = std::get_if<std::vector<int64_t>>(&samples[i].label);
    if (list == nullptr || list->size() == samples[i].input_ids.size()) continue;
    throw DataError({.what = "sample " + std::to_string(i) + " of a batch has " +
                             std::to_string(list->size()) + " labels for " +
                             std::to_string(samples[i].input_ids.size()) + " tokens",
                     .where = kCollator,
                     .hint = "special tokens and parts of words need a label too: -100"});
  }
  inputs.labels = padder_.pad_labels(samples, inputs.input_ids.size(1));
  return inputs;
}

ModelInputs DataCollatorForSeq2Seq::operator()(const std::vector<TextSample>& samples) const {
  ModelInputs inputs = padder_.pad(samples);
  if (!has_labels(samples)) return inputs;
  size_t longest = 0;
  for (const TextSample& sample : samples) {
    const auto* list = std::get_if<std::vector<int64_t>>(&sample.label);
    if (list != nullptr) longest = std::max(longest, list->size());
  }
  inputs.labels = padder_.pad_labels(samples, padder_.padded_length(static_cast<int64_t>(longest)));
  return inputs;
}

ModelInputs DataCollatorForLanguageModeling::operator()(
    const std::vector<Encoding>& encodings) const {
  return (*this)(samples_of(encodings));
}

}  // namespace accelerate::transformers
