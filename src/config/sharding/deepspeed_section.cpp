#include "config/sharding/deepspeed_section.h"

#include <cctype>
#include <cmath>
#include <utility>

#include "accelerate/errors.h"
#include "base/word_list.h"

namespace accelerate::config {
namespace {

constexpr double kWholeNumbers = 9007199254740992.0;  // 2^53: doubles below hold every one

// The whole number that `value` is, written as 4, 4.0 or 5e8.
std::optional<int64_t> whole_value(const nlohmann::json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) > kWholeNumbers || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string lower_word(std::string_view text) {
  std::string word(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

std::string number_limits(double least) {
  if (!std::isfinite(least)) return "a number";
  return least == 0 ? "a number, 0 or more" : "a number not below " + nlohmann::json(least).dump();
}

}  // namespace

DeepspeedSection::DeepspeedSection(const DeepspeedDocument& document, std::string path)
    : document_(document), path_(std::move(path)) {
  const nlohmann::json* node = document_.find(path_);
  if (node == nullptr || node->is_object()) return;
  throw ConfigError({.what = path_ + " must be an object, not " + value_text(*node),
                     .where = document_.place_of(path_)});
}

bool DeepspeedSection::is_present() const { return document_.find(path_) != nullptr; }

std::string DeepspeedSection::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const nlohmann::json* DeepspeedSection::find(std::string_view key) const {
  return document_.find(path_of(key));
}

void DeepspeedSection::refuse(std::string_view key, const std::string& should_be) const {
  const nlohmann::json* value = find(key);
  const std::string path = path_of(key);
  if (value != nullptr && *value == "auto") {
    throw ConfigError(
        {.what = "nothing is known from which the \"auto\" of " + path + " could be filled in",
         .where = place_of(key),
         .hint = "write " + should_be});
  }
  const std::string text = value == nullptr ? "absent" : value_text(*value);
  throw ConfigError(
      {.what = path + " cannot be " + text + ": it must be " + should_be, .where = place_of(key)});
}

bool DeepspeedSection::flag(std::string_view key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<int64_t> DeepspeedSection::integer_if_given(std::string_view key,
                                                          int64_t least) const {
  if (!has(key)) return std::nullopt;
  return integer(key, 0, least);
}

int64_t DeepspeedSection::integer(std::string_view key, int64_t otherwise, int64_t least,
                                  int64_t most) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  const auto number = whole_value(*value);
  if (number && *number >= least && *number <= most) return *number;
  std::string limits = " not below " + std::to_string(least);
  if (most != std::numeric_limits<int64_t>::max()) {
    limits = " from " + std::to_string(least) + " to " + std::to_string(most);
  }
  refuse(key, "a whole number" + limits);
}

double DeepspeedSection::number(std::string_view key, double otherwise, double least) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || value->get<double>() < least) refuse(key, number_limits(least));
  return value->get<double>();
}

std::vector<double> DeepspeedSection::numbers(std::string_view key, double least) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {number(key, 0, least)};
  std::vector<double> result;
  for (const nlohmann::json& item : *value) {
    if (!item.is_number() || item.get<double>() < least) {
      refuse(key, number_limits(least) + ", or a list of them");
    }
    result.push_back(item.get<double>());
  }
  if (result.empty()) refuse(key, number_limits(least) + ", or a list of them");
  return result;
}

std::string DeepspeedSection::text(std::string_view key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, "a text");
  return value->get<std::string>();
}

size_t DeepspeedSection::choice(std::string_view key, std::span<const std::string_view> choices,
                                size_t otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  const std::string word = value->is_string() ? lower_word(value->get<std::string>()) : "";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (lower_word(choices[i]) == word) return i;
  }
  refuse(key, listed(choices, "or"));
}

}  // namespace accelerate::config
