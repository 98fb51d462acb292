// Sets of characters that Oniguruma and PCRE2 name or define differently.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// What stands inside the brackets of a class of PCRE2.
inline constexpr std::string_view kWhitespaceItems = R"(\p{White_Space})";
inline constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of classes \w and \b also take small digits and fractions of Latin-1 as parts of words.
inline constexpr std::string_view kWordEscapeItems =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
inline constexpr std::string_view kHexItems = "0-9A-Fa-f";

// The items for \p{name} and for [:name:]; a name that is not known is left to PCRE2.
std::string property_items(std::string_view name);
std::string posix_items(std::string_view name);

}  // namespace accelerate::tokenizers
