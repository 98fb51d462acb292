#include "transformers/tokenizers/json/json_reading.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "accelerate/errors.h"
#include "base/lfs_pointer.h"
#include "base/message_text.h"
#include "files/json_tree.h"

namespace accelerate::tokenizers {
namespace {

using nlohmann::json;

// 10 to the `exponent`, rounded once; up to 308.
double power_of_ten(int exponent) {
  static const auto powers = [] {
    std::array<double, 309> result{};
    for (int i = 0; i < 309; ++i)
      result[static_cast<size_t>(i)] = std::stod("1e" + std::to_string(i));
    return result;
  }();
  return powers[static_cast<size_t>(exponent)];
}

double scaled(double value, int64_t exponent) {
  while (exponent < -308 && value != 0) {
    value /= 1e308;
    exponent += 308;
  }
  if (value == 0) return 0;
  if (exponent < 0) return value / power_of_ten(static_cast<int>(-exponent));
  if (exponent > 308) return std::numeric_limits<double>::infinity();
  return value * power_of_ten(static_cast<int>(exponent));
}

// `text` is a number as JSON writes it: its digits as one whole number, then the exponent. Digits
// that do not fit into 64 bits are dropped.
double read_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  uint64_t digits = 0;
  int64_t exponent = 0;
  bool fraction = false;
  bool full = false;
  size_t i = 0;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    const auto digit = static_cast<uint64_t>(text[i] - '0');
    full = full || digits > (std::numeric_limits<uint64_t>::max() - digit) / 10;
    if (full) {
      exponent += fraction ? 0 : 1;
      continue;
    }
    digits = digits * 10 + digit;
    exponent -= fraction ? 1 : 0;
  }
  if (i < text.size()) {
    const bool down = i + 1 < text.size() && text[i + 1] == '-';
    int64_t given = 0;
    for (const char c : text.substr(i + 1)) {
      if (c >= '0' && c <= '9') given = std::min<int64_t>(given * 10 + (c - '0'), 1 << 20);
    }
    exponent += down ? -given : given;
  }
  const double value = scaled(static_cast<double>(digits), exponent);
  return negative ? -value : value;
}

// Takes the events of nlohmann's parser.
class TreeBuilder {
 public:
  json take() { return tree_.take(); }
  const std::string& error() const { return error_; }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(json::number_integer_t value) { return put(value); }
  bool number_unsigned(json::number_unsigned_t value) { return put(value); }
  bool number_float(json::number_float_t /*value*/, const std::string& text) {
    const double value = read_number(text);
    if (!std::isfinite(value)) return fail("a number is out of range");
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { return fail("binary data"); }
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    tree_.key(std::move(name));
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    return fail(error.what());
  }

 private:
  bool fail(const std::string& why) {
    if (error_.empty()) error_ = why;
    return false;
  }

  bool put(json value) {
    tree_.put(std::move(value));
    return true;
  }

  bool open(json value) {
    if (tree_.is_full()) return fail("objects are nested too deeply");
    tree_.open(std::move(value));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  files::JsonTree tree_;
  std::string error_;
};

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  if (is_lfs_pointer(text)) {
    throw DataError({.what = kLfsPointer, .where = where, .hint = kLfsHint});
  }
  TreeBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    throw DataError(
        {.what = "the file is not valid JSON: " + in_quotes(builder.error()), .where = where});
  }
  return builder.take();
}

}  // namespace accelerate::tokenizers
