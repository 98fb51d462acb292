#include <algorithm>
#include <limits>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"
#include "transformers/tokenizers/encode_text.h"
#include "transformers/tokenizers/parts.h"
#include "transformers/tokenizers/text/encodings.h"

namespace accelerate {
namespace {

void check_not_negative(int64_t value, const std::string& name) {
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) return;
  throw UsageError({.what = "expected a number from 0 to 2147483647, got " + std::to_string(value),
                    .where = name});
}

// The room for tokens of the text. None where not even the special tokens fit: then the library
// that this one follows does not truncate at all.
std::optional<size_t> room_for_text(int64_t max_length, int64_t special_tokens) {
  if (max_length < special_tokens) return std::nullopt;
  return static_cast<size_t>(max_length - special_tokens);
}

void check_truncation(const TruncationOptions& options, int64_t special_tokens) {
  check_not_negative(options.max_length, "truncation.max_length");
  check_not_negative(options.stride, "truncation.stride");
  const auto room = room_for_text(options.max_length, special_tokens);
  if (!room || *room >= static_cast<size_t>(options.stride)) return;
  throw UsageError({.what = "a stride of " + std::to_string(options.stride) + " is more than the " +
                            std::to_string(*room) + " tokens that a window of " +
                            std::to_string(options.max_length) + " has beside its special tokens",
                    .where = "truncation.stride"});
}

void check_padding(const PaddingOptions& options) {
  check_not_negative(options.length.value_or(0), "padding.length");
  check_not_negative(options.pad_to_multiple_of, "padding.pad_to_multiple_of");
}

}  // namespace

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_pair(text, options, true);
}

Encoding Tokenizer::encode(std::string_view text, std::string_view pair,
                           const EncodeOptions& options) const {
  return encode_pair({text, pair}, options, true);
}

Encoding Tokenizer::encode_pair(const TextPair& texts, const EncodeOptions& options,
                                bool pad) const {
  tokenizers::BorrowedWorkspace workspace(*parts_->workspaces);
  const auto encode_one = [&](std::string_view text, int64_t sequence) {
    return tokenizers::encode_text(text, sequence, std::nullopt, parts_->normalizer.get(),
                                   parts_->pre_tokenizer.get(), *parts_->model, parts_->added,
                                   *workspace);
  };
  Encoding first = encode_one(texts.text, 0);
  std::optional<Encoding> second;
  if (texts.pair) second = encode_one(*texts.pair, 1);
  return finish(std::move(first), std::move(second), options, pad);
}

Encoding Tokenizer::finish(Encoding first, std::optional<Encoding> second,
                           const EncodeOptions& options, bool pad) const {
  const auto& truncation = options.truncation ? options.truncation : truncation_;
  if (truncation) {
    check_truncation(*truncation, special_tokens_to_add(false));
    const int64_t special =
        options.add_special_tokens ? special_tokens_to_add(second.has_value()) : 0;
    if (const auto room = room_for_text(truncation->max_length, special)) {
      tokenizers::truncate_pair(first, second ? &*second : nullptr, *room, *truncation);
    }
  }
  Encoding result = tokenizers::process_texts(parts_->processor.get(), std::move(first),
                                              std::move(second), options.add_special_tokens);
  if (pad) pad_together({&result, 1}, options);
  return result;
}

Encoding Tokenizer::encode_words(std::span<const std::string> words,
                                 const EncodeOptions& options) const {
  tokenizers::BorrowedWorkspace workspace(*parts_->workspaces);
  Encoding all;
  for (size_t i = 0; i < words.size(); ++i) {
    tokenizers::append(
        all, tokenizers::encode_text(words[i], 0, static_cast<int64_t>(i), parts_->normalizer.get(),
                                     parts_->pre_tokenizer.get(), *parts_->model, parts_->added,
                                     *workspace));
  }
  return finish(std::move(all), std::nullopt, options, true);
}

void Tokenizer::pad_together(std::span<Encoding> encodings, const EncodeOptions& options) const {
  const auto& padding = options.padding ? options.padding : padding_;
  if (!padding) return;
  check_padding(*padding);
  tokenizers::pad_together(encodings, *padding);
}

std::string Tokenizer::decode(std::span<const int64_t> ids, const DecodeOptions& options) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    auto token = id_to_token(id);
    if (!token) continue;
    if (options.skip_special_tokens && parts_->added.is_special(*token)) continue;
    tokens.push_back(std::move(*token));
  }
  const bool plain = parts_->decoder == nullptr;
  if (!plain) tokens = parts_->decoder->decode(std::move(tokens));
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (plain && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::vector<std::string> Tokenizer::decode_batch(std::span<const std::vector<int64_t>> ids,
                                                 const DecodeOptions& options) const {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const auto& list : ids) texts.push_back(decode(list, options));
  return texts;
}

std::string Tokenizer::normalize(std::string_view text) const {
  tokenizers::check_text(text);
  tokenizers::AlignedText normalized(text, 0);
  if (parts_->normalizer != nullptr) parts_->normalizer->normalize(normalized);
  return normalized.text();
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  auto id = parts_->added.find(token);
  if (!id) id = parts_->model->find(token);
  if (!id) return std::nullopt;
  return *id;
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  if (id < 0 || id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  auto token = parts_->added.token(static_cast<uint32_t>(id));
  if (!token) token = parts_->model->token(static_cast<uint32_t>(id));
  if (!token) return std::nullopt;
  return std::string(*token);
}

size_t Tokenizer::vocabulary_size(bool with_added_tokens) const {
  return parts_->model->size() +
         (with_added_tokens ? parts_->added.count_beside(*parts_->model) : 0);
}

const std::string& Tokenizer::model_type() const { return parts_->model_type; }

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return parts_->added_list; }

int64_t Tokenizer::special_tokens_to_add(bool pair) const {
  return parts_->processor == nullptr ? 0 : parts_->processor->added_tokens(pair);
}

void Tokenizer::set_truncation(std::optional<TruncationOptions> truncation) {
  if (truncation) check_truncation(*truncation, special_tokens_to_add(false));
  truncation_ = truncation;
}

void Tokenizer::set_padding(std::optional<PaddingOptions> padding) {
  if (padding) check_padding(*padding);
  padding_ = std::move(padding);
}

int64_t Tokenizer::add_tokens(std::span<const AddedToken> tokens) {
  for (const AddedToken& token : tokens) tokenizers::check_text(token.content);
  auto parts = std::make_shared<Parts>();
  parts->normalizer = parts_->normalizer;
  parts->pre_tokenizer = parts_->pre_tokenizer;
  parts->model = parts_->model;
  parts->model_type = parts_->model_type;
  parts->processor = parts_->processor;
  parts->decoder = parts_->decoder;
  parts->workspaces = parts_->workspaces;
  parts->added_list = parts_->added_list;
  parts->added.add(parts->added_list, *parts->model, parts->normalizer.get());
  const int64_t added = parts->added.add(tokens, *parts->model, parts->normalizer.get());
  parts->added_list.insert(parts->added_list.end(), tokens.begin(), tokens.end());
  parts_ = std::move(parts);
  return added;
}

}  // namespace accelerate
