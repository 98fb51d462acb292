// Patterns of tokenizer files are written for Oniguruma with the rules of Ruby; here they are
// rewritten for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// Differences that are taken care of: \s, \w, \h and names of properties, classes inside of
// classes and their intersection (&&), (?m) for "the dot takes everything", {,n}, \uXXXX, and
// {n,m}+, which repeats instead of being possessive.
//
// Throws DataError that names `where` for a pattern that ends in the middle of something.
std::string to_pcre2(std::string_view pattern, const std::string& where);

// `text` as a pattern that matches it alone.
std::string quoted_pattern(std::string_view text);

}  // namespace accelerate::tokenizers
