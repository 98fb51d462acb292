// Sets of characters that Oniguruma and PCRE2 name or define differently.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// What stands inside the brackets of a class of PCRE2.
inline constexpr std::string_view kWhitespaceItems = R"(\p{White_Space})";
inline constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
inline constexpr std::string_view kHexItems = "0-9A-Fa-f";

// The items for \p{name} and for [:name:]; a name that is not known is left to PCRE2.
std::string property_items(std::string_view name);
std::string posix_items(std::string_view name);

}  // namespace accelerate::tokenizers
