// Classes of characters ([...]) of a pattern.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// Reads the class that begins at `position` of `pattern`, where a [ stands, and moves `position`
// behind it. Returns what PCRE2 needs for the same set: a class, or a group where classes stand
// inside of the class or intersect. Throws DataError that names `where` if it does not end.
std::string translate_class(std::string_view pattern, size_t& position, const std::string& where);

// `items` (see pattern_properties.h) as a class.
inline std::string as_class(std::string_view items, bool negated) {
  return (negated ? "[^" : "[") + std::string(items) + ']';
}

// The items of the escape at `position` of `pattern`, where a \ stands; `position` moves behind it.
// `negated` tells whether the escape means all other characters. Serves inside and outside of
// classes, and leaves `items` empty for an escape that means no set of characters.
struct EscapedSet {
  std::string items{};
  bool negated = false;
};
EscapedSet translate_set_escape(std::string_view pattern, size_t& position,
                                const std::string& where);

[[noreturn]] void refuse_pattern(std::string_view pattern, const std::string& why,
                                 const std::string& where);

}  // namespace accelerate::tokenizers
