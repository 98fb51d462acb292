// Reading the objects of a tokenizer.json: every complaint names the place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::tokenizers {

// One object of the file. Refers to the JSON that it was made from.
class JsonFields {
 public:
  // Throws DataError unless `object` is one. `where` reads like "tokenizer.json: pre_tokenizer".
  JsonFields(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  // The name of the component, "" if it has none.
  std::string type() const;

  // The field, or nullptr where it is missing or null.
  const nlohmann::json* find(std::string_view name) const;
  // The field; throws DataError where it is missing or null.
  const nlohmann::json& at(std::string_view name) const;
  std::string place(std::string_view name) const { return where_ + '.' + std::string(name); }

  // Each throws DataError if the field is missing (and no default is given) or of another kind.
  std::string text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string missing) const;
  char32_t character(std::string_view name) const;
  bool flag(std::string_view name) const;
  bool flag_or(std::string_view name, bool missing) const;
  int64_t count(std::string_view name) const;  // 0 to 2^53
  int64_t count_or(std::string_view name, int64_t missing) const;
  uint32_t id(std::string_view name) const;  // below 2^32
  const nlohmann::json& list(std::string_view name) const;

  // Throws DataError that says what was expected in the field.
  [[noreturn]] void refuse(std::string_view name, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

uint32_t id_of(const nlohmann::json& value, const std::string& where);
std::string text_of(const nlohmann::json& value, const std::string& where);

// How deep components may stand inside of each other.
inline constexpr int kDeepestComponent = 16;
// Throws DataError for a `depth` beyond that.
void check_depth(int depth, const std::string& where);

// Throws DataError: there is no component of this `kind` ("normalizer") and type.
[[noreturn]] void refuse_type(std::string_view kind, const JsonFields& fields);

}  // namespace accelerate::tokenizers
