#include "model_config/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/message_text.h"

namespace accelerate::model_config {
namespace {

using nlohmann::json;

// repr() of a float: the shortest digits that give it back, with an exponent below 1e-4 and from
// 1e16 on.
std::string python_float(double value) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  std::string text(buffer.data(), result.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const bool negative = text.front() == '-';
  std::string digits;
  for (const char letter : text.substr(0, e)) {
    if (letter >= '0' && letter <= '9') digits += letter;
  }
  std::string plain;
  if (exponent < 0) {
    plain = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
    plain = digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return (negative ? "-" : "") + plain;
}

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', true); }

bool is_less(const std::string& left, const std::string& right) {
  return left.size() == right.size() ? left < right : left.size() < right.size();
}

// The members of an object in the order of their names; where those are numbers in Python, of
// these.
std::vector<json::const_iterator> members_of(const json& object, bool by_number) {
  std::vector<json::const_iterator> members;
  for (auto member = object.begin(); member != object.end(); ++member) members.push_back(member);
  if (by_number) {
    std::ranges::sort(members, [](const auto& left, const auto& right) {
      return is_less(left.key(), right.key());
    });
  }
  return members;
}

void write(const json& value, size_t indent, std::string& out, bool by_number = false) {
  const std::string line = "\n" + std::string(indent + 2, ' ');
  const std::string last = "\n" + std::string(indent, ' ');
  if (value.is_object() && !value.empty()) {
    out += '{';
    const char* between = "";
    for (const auto& member : members_of(value, by_number)) {
      out += between + line + quoted(member.key()) + ": ";
      write(*member, indent + 2, out, indent == 0 && member.key() == "id2label");
      between = ",";
    }
    out += last + '}';
  } else if (value.is_array() && !value.empty()) {
    out += '[';
    const char* between = "";
    for (const json& item : value) {
      out += between + line;
      write(item, indent + 2, out);
      between = ",";
    }
    out += last + ']';
  } else if (value.is_number_float()) {
    out += python_float(value.get<double>());
  } else {
    out += value.dump(-1, ' ', true);
  }
}

}  // namespace

std::string python_json(const json& value) {
  std::string out;
  write(value, 0, out);
  return out + '\n';
}

std::string value_in_message(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_number_float()) return python_float(value.get<double>());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace accelerate::model_config
