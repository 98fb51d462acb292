#include "transformers/pretrained/config_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "base/lfs_pointer.h"
#include "base/message_text.h"
#include "files/json_tree.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

// Takes the events of nlohmann's parser.
class ConfigEvents {
 public:
  explicit ConfigEvents(const std::string& where) : where_(where) {}

  json take() { return tree_.take(); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse_number(std::to_string(value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) {
    // The parser makes a double of whole numbers that are too long for an integer.
    if (!std::isfinite(value) || text.find_first_of(".eE") == text.npos) refuse_number(text);
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { refuse("it holds binary data"); }
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (tree_.has(name)) refuse("it has the key " + in_quotes(name) + " twice");
    tree_.key(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& error) {
    throw DataError({.what = "the file is not valid JSON: " + json_complaint(error, position),
                     .where = where_});
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError({.what = "this is not a valid configuration: " + what, .where = where_});
  }
  [[noreturn]] void refuse_number(const std::string& text) const {
    refuse("the number " + shortened(text) + " is out of range");
  }

  bool put(json value) {
    if (tree_.is_at_top()) refuse("it is not an object");
    tree_.put(std::move(value));
    return true;
  }

  bool open(json value) {
    if (tree_.is_at_top() && value.is_array()) refuse("it is a list, not an object");
    if (tree_.is_full()) {
      refuse("it is nested deeper than " + std::to_string(files::JsonTree::kDeepest) + " levels");
    }
    tree_.open(std::move(value));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  const std::string& where_;
  files::JsonTree tree_;
};

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

json parse_config(std::string_view text, const std::string& where) {
  if (is_lfs_pointer(text)) {
    throw DataError({.what = kLfsPointer, .where = where, .hint = kLfsHint});
  }
  ConfigEvents events(where);
  json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

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

}  // namespace accelerate::transformers
