// Texts and large integers as pickles write them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::files {

// A name from a file for a message: what cannot be printed as '?', cut after 100 letters.
std::string shown(std::string_view name);

bool is_utf8(std::string_view text);

// Bytes as the text whose letters have these numbers, and back; nothing if a letter has none of a
// byte.
std::string latin1_text(std::string_view bytes);
std::optional<std::string> latin1_bytes(std::string_view text);

// An integer in two's complement, lowest byte first, in decimal, and back with as few bytes as can
// be; nothing if the text is no decimal integer. Cost: quadratic in the length.
std::string decimal_of(std::string_view little_endian);
std::optional<std::string> little_endian_of(std::string_view decimal);

}  // namespace accelerate::files
