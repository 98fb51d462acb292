#include "transformers/tokenizers/json/json_fields.h"

#include <limits>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

constexpr int64_t kLargestCount = int64_t{1} << 53;

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    throw DataError({.what = "an object was expected", .where = where_});
  }
}

std::string JsonFields::type() const {
  const nlohmann::json* type = find("type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
}

const nlohmann::json* JsonFields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& JsonFields::at(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) {
    throw DataError(
        {.what = "the field \"" + std::string(name) + "\" is missing", .where = where_});
  }
  return *value;
}

std::string JsonFields::text(std::string_view name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_string()) refuse(name, "a text");
  return value.get<std::string>();
}

std::string JsonFields::text_or(std::string_view name, std::string missing) const {
  return find(name) == nullptr ? std::move(missing) : text(name);
}

char32_t JsonFields::character(std::string_view name) const {
  const std::string value = text(name);
  if (value.empty() || count_chars(value) != 1) refuse(name, "one character");
  return char_at(value, 0).value;
}

bool JsonFields::flag(std::string_view name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_boolean()) refuse(name, "true or false");
  return value.get<bool>();
}

bool JsonFields::flag_or(std::string_view name, bool missing) const {
  return find(name) == nullptr ? missing : flag(name);
}

int64_t JsonFields::count(std::string_view name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_number_integer() || value < 0 || value > kLargestCount) {
    refuse(name, "a whole number that is not negative");
  }
  return value.get<int64_t>();
}

int64_t JsonFields::count_or(std::string_view name, int64_t missing) const {
  return find(name) == nullptr ? missing : count(name);
}

uint32_t JsonFields::id(std::string_view name) const { return id_of(at(name), place(name)); }

const nlohmann::json& JsonFields::list(std::string_view name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_array()) refuse(name, "a list");
  return value;
}

void JsonFields::refuse(std::string_view name, const std::string& expected) const {
  throw DataError({.what = "expected " + expected, .where = place(name)});
}

uint32_t id_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    throw DataError({.what = "expected an id from 0 to 4294967295", .where = where});
  }
  return value.get<uint32_t>();
}

std::string text_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_string()) throw DataError({.what = "expected a text", .where = where});
  return value.get<std::string>();
}

void check_depth(int depth, const std::string& where) {
  if (depth > kDeepestComponent) {
    throw DataError({.what = "components are nested too deeply", .where = where});
  }
}

void refuse_type(std::string_view kind, const JsonFields& fields) {
  const std::string type = fields.type();
  throw DataError({.what = type.empty()
                               ? "a " + std::string(kind) + " has no type"
                               : "unknown " + std::string(kind) + " type " + in_quotes(type),
                   .where = fields.where()});
}

}  // namespace accelerate::tokenizers
