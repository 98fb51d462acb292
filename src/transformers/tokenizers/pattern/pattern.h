// A compiled regular expression.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformers/tokenizers/text/aligned_text.h"

namespace accelerate::tokenizers {

// Immutable and safe to use from any number of threads.
class Pattern {
 public:
  // `expression` as tokenizer files have it (see pattern_syntax.h), or a text to be found as it is.
  // Throws DataError that names `where` if it cannot be compiled.
  static Pattern expression(std::string_view expression, const std::string& where);
  static Pattern literal(std::string_view text, const std::string& where);

  // All matches from left to right. An empty match right behind another match does not count.
  // Replaces the contents of `matches`. Throws DataError if the search takes too many steps.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Compiled;
  Pattern(std::string source, const std::string& where);

  std::string source_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace accelerate::tokenizers
