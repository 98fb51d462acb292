#include "transformers/tokenizers/added_tokens.h"

#include <algorithm>

#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

bool same(const AddedToken& a, const AddedToken& b) {
  return a.content == b.content && a.single_word == b.single_word && a.lstrip == b.lstrip &&
         a.rstrip == b.rstrip && a.normalized == b.normalized && a.special == b.special;
}

std::string normalized_form(const std::string& content, const Normalizer* normalizer) {
  AlignedText text(content, 0);
  if (normalizer != nullptr) normalizer->normalize(text);
  return text.text();
}

uint32_t trailing_spaces(std::string_view text) {
  const size_t all = text.size();
  while (!text.empty()) {
    const DecodedChar last = last_char(text);
    if (!is_whitespace(last.value)) break;
    text.remove_suffix(last.bytes);
  }
  return static_cast<uint32_t>(all - text.size());
}

uint32_t leading_spaces(std::string_view text) {
  uint32_t bytes = 0;
  while (bytes < text.size()) {
    const DecodedChar first = char_at(text, bytes);
    if (!is_whitespace(first.value)) break;
    bytes += first.bytes;
  }
  return bytes;
}

bool stands_alone(std::string_view text, Span span) {
  if (span.begin > 0 && is_word(last_char(text.substr(0, span.begin)).value)) return false;
  return span.end == text.size() || !is_word(char_at(text, span.end).value);
}

}  // namespace

AddedTokens::Finder::Finder(std::vector<PrefixTree::Key> keys) {
  if (keys.empty()) return;
  for (const auto& key : keys) begins_[static_cast<unsigned char>(key.text[0])] = true;
  tree_ = std::make_unique<const PrefixTree>(std::move(keys));
}

Span AddedTokens::Finder::next(std::string_view text, uint32_t from, uint32_t& id) const {
  const auto size = static_cast<uint32_t>(text.size());
  if (tree_ == nullptr) return {size, size};
  for (uint32_t i = from; i < size; ++i) {
    if (!begins_[static_cast<unsigned char>(text[i])]) continue;
    size_t bytes = 0;
    const uint32_t found = tree_->longest_prefix(text.substr(i), bytes);
    if (found == PrefixTree::kNone) continue;
    id = found;
    return {i, i + static_cast<uint32_t>(bytes)};
  }
  return {size, size};
}

int64_t AddedTokens::add(std::span<const AddedToken> tokens, const Model& model,
                         const Normalizer* normalizer) {
  int64_t added = 0;
  const auto model_size = static_cast<uint32_t>(model.size());
  uint32_t next_id = model_size;
  if (!tokens_.empty() && (tokens_.rbegin()->first >= model_size || model_size == 0)) {
    next_id = tokens_.rbegin()->first + 1;
  }
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = ids_.find(token.content);
    if (known != ids_.end() && same(tokens_.at(known->second), token)) continue;
    std::optional<uint32_t> id = find(token.content);
    if (!id) id = model.find(token.content);
    if (!id) id = next_id++;
    if (token.normalized) {
      std::string form = normalized_form(token.content, normalizer);
      if (form != token.content) normalized_[*id] = std::move(form);
    }
    ids_[token.content] = *id;
    if (token.special) special_.insert(token.content);
    tokens_[*id] = token;
    ++added;
  }
  make_finders();
  return added;
}

void AddedTokens::make_finders() {
  std::vector<PrefixTree::Key> plain;
  std::vector<PrefixTree::Key> in_normalized;
  for (const auto& [id, token] : tokens_) {
    const auto form = normalized_.find(id);
    const bool changed = token.normalized && form != normalized_.end();
    const std::string_view text = changed ? form->second : token.content;
    // Nothing may be left of a token when it is normalized: then it is never found.
    if (text.empty()) continue;
    (token.normalized ? in_normalized : plain).push_back({text, id});
  }
  plain_ = Finder(std::move(plain));
  in_normalized_ = Finder(std::move(in_normalized));
}

std::optional<uint32_t> AddedTokens::find(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> AddedTokens::token(uint32_t id) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return std::nullopt;
  const auto form = normalized_.find(id);
  return form == normalized_.end() ? std::string_view(found->second.content) : form->second;
}

size_t AddedTokens::count_beside(const Model& model) const {
  return static_cast<size_t>(std::ranges::count_if(
      ids_, [&](const auto& entry) { return !model.find(entry.first).has_value(); }));
}

std::vector<AddedTokens::Match> AddedTokens::find_in(std::string_view text,
                                                     const Finder& finder) const {
  std::vector<Match> matches;
  const auto size = static_cast<uint32_t>(text.size());
  uint32_t done = 0;
  uint32_t id = 0;
  for (Span found = finder.next(text, 0, id); found.begin < size;) {
    const AddedToken& token = tokens_.at(id);
    Span span = found;
    // A token that was found and does not count is passed over all the same.
    if (!token.single_word || stands_alone(text, span)) {
      if (token.lstrip) {
        span.begin = std::max(span.begin - trailing_spaces(text.substr(0, span.begin)), done);
      }
      if (token.rstrip) span.end += leading_spaces(text.substr(span.end));
      span.end = std::max(span.end, span.begin);
      if (done < span.begin) matches.push_back({std::nullopt, {done, span.begin}});
      matches.push_back({id, span});
      done = span.end;
    }
    found = finder.next(text, found.end, id);
  }
  if (done < size) matches.push_back({std::nullopt, {done, size}});
  return matches;
}

std::vector<Segment> AddedTokens::extract(std::string_view text,
                                          const Normalizer* normalizer) const {
  std::vector<Segment> segments;
  const auto add = [&](AlignedText piece, std::optional<uint32_t> id) {
    if (piece.empty()) return;
    const Span whole = piece.whole();
    segments.push_back({std::move(piece), {whole}, id});
  };
  for (const Match& match : find_in(text, plain_)) {
    AlignedText piece(text.substr(match.span.begin, match.span.size()), match.span.begin);
    if (match.id) {
      add(std::move(piece), match.id);
      continue;
    }
    if (normalizer != nullptr) normalizer->normalize(piece);
    const std::vector<Match> inner = find_in(piece.text(), in_normalized_);
    if (inner.size() == 1 && !inner[0].id) {
      add(std::move(piece), std::nullopt);
      continue;
    }
    for (const Match& part : inner) {
      AlignedTextBuilder builder(piece);
      builder.copy(part.span);
      add(builder.take(), part.id);
    }
  }
  return segments;
}

}  // namespace accelerate::tokenizers
