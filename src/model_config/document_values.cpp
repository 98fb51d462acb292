// The values of a configuration, by type.
#include <limits>
#include <utility>

#include "model_config/document.h"

namespace accelerate::model_config {
namespace {

using nlohmann::json;

constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();
// Far more than any task has, and few enough to have a text for each.
constexpr int64_t kMostLabels = 1 << 20;

std::optional<bool> as_flag(const json& value) {
  if (!value.is_boolean()) return std::nullopt;
  return value.get<bool>();
}

std::optional<int64_t> as_integer(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<int64_t> as_size(const json& value) {
  const std::optional<int64_t> number = as_integer(value);
  return number && *number >= 1 && *number <= kLargestSize ? number : std::nullopt;
}

std::optional<double> as_number(const json& value) {
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::optional<double> as_non_negative(const json& value) {
  const std::optional<double> number = as_number(value);
  return number && *number >= 0 ? number : std::nullopt;
}

std::optional<double> as_probability(const json& value) {
  const std::optional<double> number = as_number(value);
  return number && *number >= 0 && *number <= 1 ? number : std::nullopt;
}

std::optional<std::string> as_text(const json& value) {
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// The value of the key as `read` gives it, which is nothing for one that is not what it should be.
template <class T>
T value_of(const Document& document, std::string_view key, std::optional<T>& otherwise,
           std::optional<T> (*read)(const json&), const char* should_be) {
  if (otherwise && !document.has(key)) return std::move(*otherwise);
  const json& found = document.get(key, should_be);
  std::optional<T> value = read(found);
  if (!value) document.refuse(key, found, should_be);
  return std::move(*value);
}

}  // namespace

bool Document::flag(std::string_view key, std::optional<bool> otherwise) const {
  return value_of(*this, key, otherwise, as_flag, "true or false");
}

int64_t Document::integer(std::string_view key, std::optional<int64_t> otherwise) const {
  return value_of(*this, key, otherwise, as_integer, "a whole number");
}

int64_t Document::size(std::string_view key, std::optional<int64_t> otherwise) const {
  return value_of(*this, key, otherwise, as_size, "a whole number from 1 to 2147483647");
}

double Document::number(std::string_view key, std::optional<double> otherwise) const {
  return value_of(*this, key, otherwise, as_number, "a number");
}

double Document::non_negative(std::string_view key, std::optional<double> otherwise) const {
  return value_of(*this, key, otherwise, as_non_negative, "a number that is 0 or more");
}

double Document::probability(std::string_view key, std::optional<double> otherwise) const {
  return value_of(*this, key, otherwise, as_probability, "a number from 0 to 1");
}

std::string Document::text(std::string_view key, std::optional<std::string> otherwise) const {
  return value_of(*this, key, otherwise, as_text, "a text");
}

std::vector<int64_t> Document::integers(std::string_view key) const {
  const json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return {integer(key)};
  std::vector<int64_t> values;
  for (const json& item : *found) {
    const std::optional<int64_t> value = as_integer(item);
    if (!value) refuse(key, *found, "a whole number or a list of them");
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> Document::texts(std::string_view key) const {
  const json* found = find(key);
  if (found == nullptr) return {};
  std::vector<std::string> values;
  if (!found->is_array()) refuse(key, *found, "a list of texts");
  for (const json& item : *found) {
    if (!item.is_string()) refuse(key, *found, "a list of texts");
    values.push_back(item.get<std::string>());
  }
  return values;
}

// As in Python: a number that contradicts the names counts.
int64_t Document::label_count() const {
  const json* names = find("id2label");
  if (names != nullptr && (!names->is_object() || names->empty())) {
    refuse("id2label", *names, "an object that maps numbers of classes to names");
  }
  const auto named = static_cast<int64_t>(names == nullptr ? 2 : names->size());
  return checked_label_count(integer("num_labels", named));
}

int64_t Document::checked_label_count(int64_t count) const {
  if (count >= 1 && count <= kMostLabels) return count;
  refuse("num_labels", count, "a whole number from 1 to " + std::to_string(kMostLabels));
}

}  // namespace accelerate::model_config
