#include "accelerate/transformers/pretrained_tokenizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "accelerate/errors.h"
#include "transformers/text/text_tensors.h"
#include "transformers/tokenizers/text/encodings.h"

namespace accelerate::transformers {

std::optional<int64_t> PretrainedTokenizer::id_of(const std::optional<std::string>& token) const {
  if (!token) return std::nullopt;
  return tokenizer_.token_to_id(*token);
}

std::vector<int64_t> PretrainedTokenizer::special_token_ids() const {
  std::vector<int64_t> ids;
  const auto take = [&](const std::optional<std::string>& token) {
    if (const auto id = id_of(token)) ids.push_back(*id);
  };
  for (const auto& token : {special_.bos, special_.eos, special_.unk, special_.sep, special_.pad,
                            special_.cls, special_.mask}) {
    take(token);
  }
  for (const std::string& token : special_.additional) take(token);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void PretrainedTokenizer::set_pad_token(const std::string& token) {
  if (!tokenizer_.token_to_id(token)) {
    throw UsageError({.what = "the vocabulary has no token " + token,
                      .where = "PretrainedTokenizer::set_pad_token",
                      .hint = "add it with add_tokens(), or take one that is there, such as the "
                              "end of a text"});
  }
  special_.pad = token;
}

void PretrainedTokenizer::set_model_max_length(std::optional<int64_t> length) {
  if (length && *length <= 0) {
    throw UsageError({.what = "expected a length above 0, got " + std::to_string(*length),
                      .where = "PretrainedTokenizer::set_model_max_length"});
  }
  model_max_length_ = length;
}

int64_t PretrainedTokenizer::add_tokens(std::span<const AddedToken> tokens) {
  const int64_t added = tokenizer_.add_tokens(tokens);
  added_.insert(added_.end(), tokens.begin(), tokens.end());
  return added;
}

std::optional<PaddingOptions> PretrainedTokenizer::padding_of(const TextOptions& options,
                                                              Padding unset) const {
  const Padding padding = options.padding.value_or(unset);
  const std::optional<int64_t> max_length =
      options.max_length ? options.max_length : model_max_length_;
  if (padding == Padding::kNone || (padding == Padding::kMaxLength && !max_length)) {
    return std::nullopt;
  }
  if (!pad_token_id()) {
    if (!options.padding && options.pad_to_multiple_of == 0) return std::nullopt;
    throw_no_pad_token("PretrainedTokenizer");
  }
  PaddingOptions result{.direction = options.padding_side.value_or(padding_side_),
                        .pad_to_multiple_of = options.pad_to_multiple_of,
                        .pad_id = *pad_token_id(),
                        .pad_type_id = pad_token_type_id_,
                        .pad_token = *special_.pad};
  if (padding == Padding::kMaxLength) result.length = max_length;
  return result;
}

EncodeOptions PretrainedTokenizer::encode_options(const TextOptions& options) const {
  EncodeOptions result{.add_special_tokens = options.add_special_tokens};
  const std::optional<int64_t> max_length =
      options.max_length ? options.max_length : model_max_length_;
  if (options.truncation && max_length) {
    result.truncation = TruncationOptions{.max_length = *max_length,
                                          .strategy = options.strategy,
                                          .stride = options.stride,
                                          .direction = truncation_side_};
  }
  return result;
}

Encoding PretrainedTokenizer::encode(const TextPair& text, const TextOptions& options) const {
  TextOptions alone = options;
  alone.threads = 1;
  return std::move(encode_batch({&text, 1}, alone).front());
}

Encoding PretrainedTokenizer::encode_words(std::span<const std::string> words,
                                           const TextOptions& options) const {
  EncodeOptions encode = encode_options(options);
  encode.padding = padding_of(options, Padding::kNone);
  return tokenizer_.encode_words(words, encode);
}

std::vector<Encoding> PretrainedTokenizer::encode_batch(std::span<const TextPair> texts,
                                                        const TextOptions& options) const {
  BatchOptions batch{.encode = encode_options(options), .threads = options.threads};
  batch.encode.padding = padding_of(options, Padding::kNone);
  return tokenizer_.encode_batch(texts, batch);
}

std::vector<Encoding> PretrainedTokenizer::encode_batch(std::span<const std::string> texts,
                                                        const TextOptions& options) const {
  const std::vector<TextPair> pairs(texts.begin(), texts.end());
  return encode_batch(pairs, options);
}

ModelInputs PretrainedTokenizer::pad(std::span<const Encoding> encodings,
                                     const TextOptions& options) const {
  std::vector<Encoding> padded(encodings.begin(), encodings.end());
  const auto padding = padding_of(options, Padding::kLongest);
  if (padding) tokenizers::pad_together(padded, *padding);
  return tensors_of(padded, has_token_type_ids_, pad_token_id().has_value());
}

ModelInputs PretrainedTokenizer::operator()(std::span<const TextPair> texts,
                                            const TextOptions& options) const {
  BatchOptions batch{.encode = encode_options(options), .threads = options.threads};
  batch.encode.padding = padding_of(options, Padding::kLongest);
  return tensors_of(tokenizer_.encode_batch(texts, batch), has_token_type_ids_,
                    pad_token_id().has_value());
}

ModelInputs PretrainedTokenizer::operator()(const TextPair& text,
                                            const TextOptions& options) const {
  return (*this)(std::span<const TextPair>(&text, 1), options);
}

ModelInputs PretrainedTokenizer::operator()(std::string_view text, std::string_view pair,
                                            const TextOptions& options) const {
  return (*this)(TextPair(text, pair), options);
}

ModelInputs PretrainedTokenizer::operator()(std::initializer_list<TextPair> texts,
                                            const TextOptions& options) const {
  return (*this)(std::span<const TextPair>(texts.begin(), texts.size()), options);
}

ModelInputs PretrainedTokenizer::operator()(std::span<const std::string> texts,
                                            const TextOptions& options) const {
  const std::vector<TextPair> pairs(texts.begin(), texts.end());
  return (*this)(std::span<const TextPair>(pairs), options);
}

std::string PretrainedTokenizer::clean_up(std::string text) const {
  if (!cleans_up_spaces_) return text;
  using Change = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Change, 10> kChanges{
      Change{" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      Change{" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kChanges) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), to);
      at += to.size();
    }
  }
  return text;
}

std::string PretrainedTokenizer::decode(std::span<const int64_t> ids,
                                        const DecodeOptions& options) const {
  return clean_up(tokenizer_.decode(ids, options));
}

std::string PretrainedTokenizer::decode(const at::Tensor& ids, const DecodeOptions& options) const {
  const at::Tensor list = ids_on_cpu(ids, 1);
  return decode({list.data_ptr<int64_t>(), static_cast<size_t>(list.numel())}, options);
}

std::vector<std::string> PretrainedTokenizer::batch_decode(const at::Tensor& ids,
                                                           const DecodeOptions& options) const {
  const at::Tensor rows = ids_on_cpu(ids, 2);
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(rows.size(0)));
  for (int64_t row = 0; row < rows.size(0); ++row) texts.push_back(decode(rows[row], options));
  return texts;
}

}  // namespace accelerate::transformers
