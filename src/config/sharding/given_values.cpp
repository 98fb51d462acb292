#include "config/sharding/given_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/printable_text.h"
#include "base/word_list.h"

namespace accelerate::config {
namespace {

[[noreturn]] void refuse_given(std::string_view setting, const GivenValue& value,
                               const std::string& should_be) {
  throw ConfigError({.what = std::string(setting) + " cannot be '" + printable_text(value.text) +
                             "': it must be " + should_be,
                     .where = value.place});
}

template <class Number>
std::optional<Number> all_of(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

bool given_matches(const GivenValue& value, std::string_view word) {
  return std::ranges::equal(word, value.text, [](unsigned char a, unsigned char b) {
    return std::toupper(a) == std::toupper(b);
  });
}

bool given_flag(std::string_view setting, const GivenValue& value) {
  try {
    return parse_flag(std::string(setting).c_str(), value.text);
  } catch (const ConfigError&) {
    refuse_given(setting, value, "true or false");
  }
}

int64_t given_integer(std::string_view setting, const GivenValue& value, int64_t least) {
  const auto number = all_of<int64_t>(value.text);
  if (number && *number >= least) return *number;
  refuse_given(setting, value, "a whole number not below " + std::to_string(least));
}

double given_number(std::string_view setting, const GivenValue& value, double least) {
  const auto number = all_of<double>(value.text);
  if (number && std::isfinite(*number) && *number >= least) return *number;
  refuse_given(setting, value, least == 0 ? "a number, 0 or more" : "a number");
}

size_t given_choice(std::string_view setting, const GivenValue& value,
                    std::span<const std::string_view> choices) {
  const auto found = std::ranges::find_if(
      choices, [&](std::string_view choice) { return given_matches(value, choice); });
  if (found == choices.end()) refuse_given(setting, value, listed(choices, "or"));
  return static_cast<size_t>(found - choices.begin());
}

void refuse_contradiction(const std::string& what, const std::string& place,
                          const std::string& other_place, const std::string& hint) {
  throw ConfigError({.what = what, .where = place + " and " + other_place, .hint = hint});
}

}  // namespace accelerate::config
