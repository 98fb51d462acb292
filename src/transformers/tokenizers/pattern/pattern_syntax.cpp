#include "transformers/tokenizers/pattern/pattern_syntax.h"

#include <optional>
#include <vector>

#include "transformers/tokenizers/pattern/pattern_class.h"
#include "transformers/tokenizers/pattern/pattern_properties.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

struct Interval {
  std::string text{};  // as PCRE2 has it
  bool fixed = false;  // {n}
  size_t bytes = 0;
};

// {n}, {n,}, {,m} or {n,m} at `position`; anything else in braces is text.
std::optional<Interval> interval_at(std::string_view pattern, size_t position) {
  const size_t close = pattern.find('}', position);
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view inside = pattern.substr(position + 1, close - position - 1);
  const size_t comma = inside.find(',');
  const std::string_view low = inside.substr(0, comma);
  const std::string_view high =
      comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
  const auto is_number = [](std::string_view text) {
    return text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!is_number(low) || !is_number(high) || (low.empty() && high.empty())) return std::nullopt;
  Interval result{.fixed = comma == std::string_view::npos, .bytes = inside.size() + 2};
  result.text = '{' + std::string(low.empty() ? "0" : low);
  if (!result.fixed) result.text += ',' + std::string(high);
  result.text += '}';
  return result;
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string translated() {
    while (position_ < pattern_.size()) translate_next();
    return std::move(out_);
  }

 private:
  void translate_next() {
    const char c = pattern_[position_];
    switch (c) {
      case '\\':
        return translate_escape();
      case '[':
        atom_ = out_.size();
        out_ += translate_class(pattern_, position_, where_);
        return;
      case '(':
        return open_group();
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        return copy(1);
      case '{':
        return translate_brace();
      case '*':
      case '+':
      case '?':
      case '|':
        return copy(1);
      default:
        atom_ = out_.size();
        return copy(utf8_length(c));
    }
  }

  void copy(size_t bytes) {
    out_ += pattern_.substr(position_, bytes);
    position_ += bytes;
  }

  void emit(std::string_view text, size_t bytes) {
    atom_ = out_.size();
    out_ += text;
    position_ += bytes;
  }

  void translate_escape() {
    atom_ = out_.size();
    const std::string word = as_class(kWordEscapeItems, false);
    if (position_ + 1 < pattern_.size() && pattern_[position_ + 1] == 'w') return emit(word, 2);
    if (position_ + 1 < pattern_.size() && pattern_[position_ + 1] == 'W') {
      return emit(as_class(kWordEscapeItems, true), 2);
    }
    if (const EscapedSet set = translate_set_escape(pattern_, position_, where_);
        !set.items.empty()) {
      out_ += as_class(set.items, set.negated);
      return;
    }
    const char c = pattern_[position_ + 1];
    switch (c) {
      case 'b':
        return emit("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))", 2);
      case 'B':
        return emit("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))", 2);
      case 'v':
        return emit(R"(\x0b)", 2);
      case 'O':
        return emit("(?s:.)", 2);
      case 'u':
        return emit(R"(\x{)" + std::string(pattern_.substr(position_ + 2, 4)) + '}',
                    std::min<size_t>(6, pattern_.size() - position_));
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool known = std::string_view("AGKNRXZaefgknrtxz").find(c) != std::string_view::npos;
    // Oniguruma takes a letter without a meaning as itself.
    if (letter && !known) return emit(pattern_.substr(position_ + 1, 1), 2);
    if (utf8_length(c) > 1)
      return emit(pattern_.substr(position_ + 1, utf8_length(c)), 1 + utf8_length(c));
    copy(2);
    // \x{4e2d} and \g{1}: what is in the braces belongs to the escape.
    const size_t close = pattern_.find('}', position_);
    if ((c == 'x' || c == 'g' || c == 'k') && position_ < pattern_.size() &&
        pattern_[position_] == '{' && close != std::string_view::npos) {
      copy(close + 1 - position_);
    }
  }

  // (?imx) and (?imx-imx:...) may stand at the beginning of a group; m means what s does elsewhere.
  void open_group() {
    const size_t begin = out_.size();
    copy(1);
    if (position_ >= pattern_.size() || pattern_[position_] != '?') {
      groups_.push_back(begin);
      return;
    }
    copy(1);
    if (position_ < pattern_.size() && pattern_[position_] == '#') {
      const size_t end = pattern_.find(')', position_);
      copy(end == std::string_view::npos ? pattern_.size() - position_ : end + 1 - position_);
      return;
    }
    const size_t end = pattern_.find_first_not_of("imx-", position_);
    const bool options = end != std::string_view::npos && end > position_ &&
                         (pattern_[end] == ')' || pattern_[end] == ':');
    if (!options) {
      groups_.push_back(begin);
      const bool kind =
          position_ < pattern_.size() &&
          std::string_view(":=!<>").find(pattern_[position_]) != std::string_view::npos;
      return copy(kind ? 1 : 0);
    }
    for (; position_ < end; ++position_) {
      out_ += pattern_[position_] == 'm' ? 's' : pattern_[position_];
    }
    const bool whole_group = pattern_[end] == ')';
    copy(1);
    if (!whole_group) groups_.push_back(begin);
  }

  void translate_brace() {
    const auto interval = interval_at(pattern_, position_);
    if (!interval) return emit(R"(\{)", 1);
    out_ += interval->text;
    position_ += interval->bytes;
    if (position_ >= pattern_.size()) return;
    // Here + repeats what was repeated, and ? makes what was repeated optional.
    const char next = pattern_[position_];
    if (next == '+' || (next == '?' && interval->fixed)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t position_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last thing that can be repeated begins
  std::vector<size_t> groups_;  // where the open groups begin
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).translated();
}

std::string quoted_pattern(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 &&
        std::string_view("\\^$.[]|()?*+{}-#& ~").find(c) != std::string_view::npos) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

}  // namespace accelerate::tokenizers
