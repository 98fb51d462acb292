#include "transformers/tokenizers/pattern/pattern_class.h"

#include <vector>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/tokenizers/pattern/pattern_properties.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

constexpr int kDeepestClass = 20;

// A set of characters as it was read.
struct CharClass {
  bool negated = false;
  std::string items{};                // for the brackets of PCRE2
  std::vector<std::string> others{};  // expressions of one character each, joined to the items
};

// One character of all that are in the set.
std::string expression_of(const CharClass& set) {
  if (set.others.empty()) {
    // An empty class takes nothing.
    if (set.items.empty()) return set.negated ? "(?s:.)" : "(?!)";
    return as_class(set.items, set.negated);
  }
  std::string any = set.items.empty() ? "" : as_class(set.items, false);
  for (const std::string& other : set.others) any += (any.empty() ? "" : "|") + other;
  return set.negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
}

class ClassReader {
 public:
  ClassReader(std::string_view pattern, size_t& position, const std::string& where)
      : pattern_(pattern), position_(position), where_(where) {}

  // Reads from the [ on.
  std::string read(int depth) {
    if (depth > kDeepestClass) refuse_pattern(pattern_, "classes are nested too deeply", where_);
    ++position_;
    const bool negated = take("^");
    std::vector<CharClass> parts(1);
    bool first = true;
    while (true) {
      if (position_ >= pattern_.size()) refuse_pattern(pattern_, "a class does not end", where_);
      if (!first && take("]")) break;
      if (take("&&")) {
        parts.emplace_back();
      } else {
        read_item(parts.back(), depth);
      }
      first = false;
    }
    if (parts.size() == 1) {
      parts[0].negated = negated;
      return expression_of(parts[0]);
    }
    // In all of the parts: looked ahead for in all but the first, taken by the first.
    std::string all;
    for (size_t i = 1; i < parts.size(); ++i) all += "(?=" + expression_of(parts[i]) + ')';
    all += expression_of(parts[0]);
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

 private:
  bool take(std::string_view text) {
    if (!pattern_.substr(position_).starts_with(text)) return false;
    position_ += text.size();
    return true;
  }

  void add(CharClass& set, const std::string& items, bool negated) {
    if (negated) {
      set.others.push_back(as_class(items, true));
    } else {
      set.items += items;
    }
  }

  void read_item(CharClass& set, int depth) {
    const char c = pattern_[position_];
    if (c == '\\') {
      const EscapedSet escaped = translate_set_escape(pattern_, position_, where_);
      if (!escaped.items.empty()) return add(set, escaped.items, escaped.negated);
      return read_escape(set);
    }
    if (c == '[') return read_bracket(set, depth);
    const uint32_t bytes = utf8_length(c);
    if (c == ']' || c == '^') set.items += '\\';
    set.items += pattern_.substr(position_, bytes);
    position_ += bytes;
  }

  // An escape of one character.
  void read_escape(CharClass& set) {
    if (position_ + 1 >= pattern_.size()) refuse_pattern(pattern_, "ends in a \\", where_);
    const char c = pattern_[position_ + 1];
    const uint32_t bytes = utf8_length(c);
    if (c == 'v') {
      set.items += R"(\x0b)";
    } else if (c == 'u') {
      set.items += R"(\x{)" + std::string(pattern_.substr(position_ + 2, 4)) + '}';
      position_ += 4;
    } else if (std::string_view("abefnrtx01234567").find(c) != std::string_view::npos) {
      set.items += {'\\', c};
    } else {
      // Oniguruma takes any other character as itself.
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || bytes > 1;
      if (!plain) set.items += '\\';
      set.items += pattern_.substr(position_ + 1, bytes);
    }
    position_ = std::min(position_ + 1 + bytes, pattern_.size());
  }

  // [:name:] or a class inside of the class.
  void read_bracket(CharClass& set, int depth) {
    const size_t end = pattern_.find(":]", position_);
    if (pattern_.substr(position_).starts_with("[:") && end != std::string_view::npos) {
      std::string_view name = pattern_.substr(position_ + 2, end - position_ - 2);
      const bool negated = name.starts_with('^');
      if (negated) name.remove_prefix(1);
      if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos) {
        position_ = end + 2;
        return add(set, posix_items(name), negated);
      }
    }
    set.others.push_back(read(depth + 1));
  }

  std::string_view pattern_;
  size_t& position_;
  const std::string& where_;
};

}  // namespace

void refuse_pattern(std::string_view pattern, const std::string& why, const std::string& where) {
  throw DataError(
      {.what = "the pattern " + in_quotes(pattern) + " cannot be used: " + why, .where = where});
}

std::string translate_class(std::string_view pattern, size_t& position, const std::string& where) {
  return ClassReader(pattern, position, where).read(0);
}

EscapedSet translate_set_escape(std::string_view pattern, size_t& position,
                                const std::string& where) {
  if (position + 1 >= pattern.size()) refuse_pattern(pattern, "it ends in a \\", where);
  const char c = pattern[position + 1];
  const auto set = [&](std::string_view items, bool negated) -> EscapedSet {
    position += 2;
    return {std::string(items), negated};
  };
  switch (c) {
    case 's':
    case 'S':
      return set(kWhitespaceItems, c == 'S');
    case 'w':
    case 'W':
      return set(kWordItems, c == 'W');
    case 'h':
    case 'H':
      return set(kHexItems, c == 'H');
    case 'd':
    case 'D':
      return set(R"(\p{Nd})", c == 'D');
    case 'p':
    case 'P':
      break;
    default:
      return {};
  }
  const size_t open = position + 2;
  const size_t close = pattern.find('}', open);
  if (open >= pattern.size() || pattern[open] != '{' || close == std::string_view::npos) {
    refuse_pattern(pattern, "a property has no name", where);
  }
  std::string_view name = pattern.substr(open + 1, close - open - 1);
  const bool inverted = name.starts_with('^');
  if (inverted) name.remove_prefix(1);
  position = close + 1;
  return {property_items(name), (c == 'P') != inverted};
}

}  // namespace accelerate::tokenizers
