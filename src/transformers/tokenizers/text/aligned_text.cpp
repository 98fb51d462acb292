#include "transformers/tokenizers/text/aligned_text.h"

#include "accelerate/errors.h"
#include "transformers/tokenizers/text/unicode.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {

void check_growth(size_t bytes, size_t limit) {
  if (bytes <= limit) return;
  throw DataError({.what = "a text grows beyond 64 times its size while it is normalized"});
}

Span AlignedText::source(uint32_t index) const {
  if (!sources_.empty()) return sources_[index];
  uint32_t begin = index;
  while ((static_cast<unsigned char>(text_[begin]) & 0xc0) == 0x80) --begin;
  return {origin_ + begin, origin_ + begin + utf8_length(text_[begin])};
}

void AlignedText::transform(const std::vector<CharChange>& changes, size_t dropped) {
  // With no text there is nothing that a new character could belong to.
  if (text_.empty()) return;
  uint32_t old = 0;  // the next old byte
  const auto next_old_char = [&] {
    if (old < text_.size()) old += utf8_length(text_[old]);
  };
  for (size_t i = 0; i < dropped; ++i) next_old_char();

  std::string text;
  std::vector<Span> sources;
  text.reserve(text_.size());
  sources.reserve(text_.size());
  for (const CharChange& change : changes) {
    Span from;
    if (change.change > 0) {
      from = old == 0 ? Span{origin_, origin_} : source(old - 1);
    } else {
      from = source(old < text_.size() ? old : size() - 1);
      for (int i = 0; i >= change.change; --i) next_old_char();
    }
    append_utf8(text, change.character);
    sources.insert(sources.end(), utf8_length(change.character), from);
  }
  check_growth(text.size(), limit_);
  text_ = std::move(text);
  sources_ = std::move(sources);
}

void AlignedText::prepend(std::string_view beginning) {
  if (text_.empty() || beginning.empty()) return;
  AlignedTextBuilder builder(*this);
  builder.append(beginning, 0U);
  builder.copy(whole());
  *this = builder.take();
}

void AlignedText::strip(bool left, bool right) {
  Span kept = whole();
  while (left && kept.size() > 0) {
    const DecodedChar first = char_at(text_, kept.begin);
    if (!is_whitespace(first.value)) break;
    kept.begin += first.bytes;
  }
  while (right && kept.size() > 0) {
    const DecodedChar last = last_char(view(kept));
    if (!is_whitespace(last.value)) break;
    kept.end -= last.bytes;
  }
  if (kept == whole()) return;
  if (sources_.empty()) {
    origin_ += kept.begin;
  } else {
    sources_ = {sources_.begin() + kept.begin, sources_.begin() + kept.end};
  }
  text_ = text_.substr(kept.begin, kept.size());
}

void AlignedText::write_chars(const std::vector<char32_t>& chars) {
  std::vector<CharChange> changes;
  changes.reserve(chars.size());
  for (const char32_t character : chars) changes.push_back({character, 0});
  transform(changes);
}

void AlignedTextBuilder::copy(Span span) {
  text_.append(old_.text(), span.begin, span.size());
  if (!old_.sources_.empty()) {
    sources_.insert(sources_.end(), old_.sources_.begin() + span.begin,
                    old_.sources_.begin() + span.end);
    return;
  }
  for (uint32_t i = span.begin; i < span.end;) {
    const uint32_t bytes = utf8_length(old_.text()[i]);
    sources_.insert(sources_.end(), bytes, Span{old_.origin_ + i, old_.origin_ + i + bytes});
    i += bytes;
  }
}

AlignedText AlignedTextBuilder::take() {
  AlignedText result;
  result.text_ = std::move(text_);
  result.sources_ = std::move(sources_);
  result.limit_ = old_.limit_;
  return result;
}

}  // namespace accelerate::tokenizers
