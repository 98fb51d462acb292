#include "launch/remote/message.h"

#include <cctype>
#include <charconv>

namespace accelerate::launch {
namespace {

constexpr char kListEnd = '\n';  // after each item of a list

bool is_plain(unsigned char c) {
  return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/' || c == ':' ||
         c == ',' || c == '+' || c == '@';
}

void append_escaped(std::string& to, std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char each : text) {
    const auto c = static_cast<unsigned char>(each);
    if (is_plain(c)) {
      to += each;
    } else {
      to += {'%', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      if (!is_plain(static_cast<unsigned char>(text[at]))) return std::nullopt;
      result += text[at];
      continue;
    }
    if (at + 2 >= text.size()) return std::nullopt;
    const int high = digit(text[at + 1]);
    const int low = digit(text[at + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return result;
}

}  // namespace

std::optional<Message> Message::decode(std::string_view line, size_t max_bytes) {
  if (line.size() > max_bytes) return std::nullopt;
  size_t end = line.find(' ');
  const auto name = unescaped(line.substr(0, end));
  if (!name || name->empty()) return std::nullopt;
  Message message(*name);
  while (end != std::string_view::npos) {
    line.remove_prefix(end + 1);
    end = line.find(' ');
    const std::string_view item = line.substr(0, end);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto key = unescaped(item.substr(0, equals));
    const auto value = unescaped(item.substr(equals + 1));
    if (!key || key->empty() || !value) return std::nullopt;
    message.values_[*key] = *value;
  }
  return message;
}

std::string Message::encode() const {
  std::string line;
  append_escaped(line, name_);
  for (const auto& [key, value] : values_) {
    line += ' ';
    append_escaped(line, key);
    line += '=';
    append_escaped(line, value);
  }
  return line;
}

Message& Message::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  return *this;
}

Message& Message::set(const std::string& key, int64_t value) {
  return set(key, std::to_string(value));
}

Message& Message::set(const std::string& key, const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) {
    // An item may hold the end mark itself: escaped once more.
    append_escaped(list, value);
    list += kListEnd;
  }
  return set(key, std::move(list));
}

std::string Message::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

int64_t Message::number(const std::string& key) const {
  const std::string value = text(key);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() ? number : 0;
}

std::vector<std::string> Message::texts(const std::string& key) const {
  const std::string list = text(key);
  std::vector<std::string> values;
  size_t begin = 0;
  for (size_t end = list.find(kListEnd); end != std::string::npos;
       end = list.find(kListEnd, begin)) {
    values.push_back(unescaped(std::string_view(list).substr(begin, end - begin)).value_or(""));
    begin = end + 1;
  }
  return values;
}

}  // namespace accelerate::launch
