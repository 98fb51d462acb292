// A text that changes on its way to the model and still knows where each of its characters came
// from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::tokenizers {

// Bytes [begin, end).
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};

// One character of a changed text and what became of the old one: 0 it takes the place of the next
// old character, 1 it is new and belongs to the old character before, -n it takes the place of the
// next old character and the n after that are gone.
struct CharChange {
  char32_t character = 0;
  int change = 0;
};

// Throws DataError if a text of `bytes` is more than `limit`, which is 64 times what it was made
// from.
void check_growth(size_t bytes, size_t limit);

// Valid UTF-8 with, for each byte, the bytes of the original input that it stands for. As long as
// every character stands for itself no list is kept; text of equal length may then be written in
// place.
class AlignedText {
 public:
  AlignedText() = default;
  // The bytes of the input from byte `origin` on.
  AlignedText(std::string_view text, uint32_t origin)
      : text_(text), origin_(origin), limit_(text.size() * 64 + 4096) {}

  const std::string& text() const { return text_; }
  std::string_view view(Span span) const {
    return std::string_view(text_).substr(span.begin, span.size());
  }
  bool empty() const { return text_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(text_.size()); }
  Span whole() const { return {0, size()}; }

  // The bytes of the input that byte `index` stands for: all bytes of a character stand for the
  // same.
  Span source(uint32_t index) const;
  // The bytes of the input from the first byte of `span` to its last; `span` is not empty.
  Span source_of(Span span) const { return {source(span.begin).begin, source(span.end - 1).end}; }

  // Replaces all of the text by `changes`, the first of which begins after `dropped` old
  // characters.
  void transform(const std::vector<CharChange>& changes, size_t dropped = 0);

  // The rest does what transform() could do, without a list of changes where nothing changes.
  template <typename Keep>
  void keep_if(Keep keep);
  template <typename Map>
  void map_chars(Map map);
  void prepend(std::string_view beginning);
  void strip(bool left, bool right);

 private:
  friend class AlignedTextBuilder;
  void write_chars(const std::vector<char32_t>& chars);

  std::string text_;
  std::vector<Span> sources_;  // one a byte, or none: each character stands for itself
  uint32_t origin_ = 0;        // of the first byte, where sources_ is empty
  size_t limit_ = 0;           // of the bytes, so that no rule of a file can fill the memory
};

// Puts an AlignedText together from pieces of another.
class AlignedTextBuilder {
 public:
  explicit AlignedTextBuilder(const AlignedText& old) : old_(old) {
    text_.reserve(old.text().size() + 16);
    sources_.reserve(old.text().size() + 16);
  }

  uint32_t size() const { return static_cast<uint32_t>(text_.size()); }
  void copy(Span span);
  // `text` stands for what byte `index` of the old one stands for.
  void append(std::string_view text, uint32_t index) { append(text, old_.source(index)); }
  void append(std::string_view text, Span source) {
    check_growth(text_.size() + text.size(), old_.limit_);
    text_ += text;
    sources_.insert(sources_.end(), text.size(), source);
  }
  // Leaves nothing behind.
  AlignedText take();

 private:
  const AlignedText& old_;
  std::string text_;
  std::vector<Span> sources_;
};

}  // namespace accelerate::tokenizers

#include "transformers/tokenizers/text/aligned_text_inl.h"  // IWYU pragma: export
