// The templates of AlignedText.
#pragma once

#include "transformers/tokenizers/text/aligned_text.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {

template <typename Keep>
void AlignedText::keep_if(Keep keep) {
  bool all = true;
  for (size_t i = 0; i < text_.size() && all;) {
    const DecodedChar decoded = char_at(text_, i);
    all = keep(decoded.value);
    i += decoded.bytes;
  }
  if (all) return;

  std::string text;
  std::vector<Span> sources;
  text.reserve(text_.size());
  sources.reserve(text_.size());
  for_each_char(text_, [&](char32_t character, size_t begin) {
    if (!keep(character)) return;
    const uint32_t bytes = utf8_length(character);
    text.append(text_, begin, bytes);
    sources.insert(sources.end(), bytes, source(static_cast<uint32_t>(begin)));
  });
  text_ = std::move(text);
  sources_ = std::move(sources);
}

template <typename Map>
void AlignedText::map_chars(Map map) {
  // Most changes keep the length: those are written in place, and the sources stay true.
  for (size_t i = 0; i < text_.size();) {
    const DecodedChar decoded = char_at(text_, i);
    const char32_t mapped = map(decoded.value);
    if (mapped != decoded.value) {
      if (utf8_length(mapped) != decoded.bytes) {
        std::vector<char32_t> chars;
        for_each_char(text_, [&](char32_t character, size_t begin) {
          chars.push_back(begin < i ? character : map(character));
        });
        write_chars(chars);
        return;
      }
      if (decoded.bytes == 1) {
        text_[i] = static_cast<char>(mapped);
      } else {
        text_.replace(i, decoded.bytes, utf8_of(mapped));
      }
    }
    i += decoded.bytes;
  }
}

}  // namespace accelerate::tokenizers
