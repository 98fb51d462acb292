#include "transformers/pretrained/config_document.h"

#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/pretrained/attribute_names.h"
#include "transformers/pretrained/config_json.h"

namespace accelerate::transformers {

using nlohmann::json;

namespace {

std::string type_in(const json& root) {
  const auto type = root.find("model_type");
  return type != root.end() && type->is_string() ? type->get<std::string>() : std::string();
}

}  // namespace

std::string ConfigDocument::own_name(std::string_view key) const {
  return std::string(own_attribute_name(type_in(root), key));
}

void ConfigDocument::use_own_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [key, value] : root.items()) {
    if (std::string own = own_name(key); own != key) names.emplace_back(key, std::move(own));
  }
  // As in Python the common name counts where a file has both.
  for (const auto& [common, own] : names) {
    root[own] = std::move(root[common]);
    root.erase(common);
  }
}

const std::string& ConfigDocument::source_of(std::string_view key) const {
  const auto found = sources.find(own_name(key));
  return found == sources.end() ? name : found->second;
}

const json* ConfigDocument::find(std::string_view other_key) const {
  const std::string own = own_name(other_key);
  std::string_view key = own;
  const json* at = &root;
  while (true) {
    if (!at->is_object()) return nullptr;
    const size_t dot = key.find('.');
    const auto found = at->find(std::string(key.substr(0, dot)));
    if (found == at->end() || found->is_null()) return nullptr;
    at = &*found;
    if (dot == key.npos) return at;
    key.remove_prefix(dot + 1);
  }
}

const json& ConfigDocument::get(std::string_view key, const char* should_be) const {
  const json* found = find(key);
  if (found != nullptr) return *found;
  throw DataError(
      {.what = in_quotes(key) + " is missing; it should be " + should_be, .where = name});
}

json& ConfigDocument::place(std::string_view key) {
  json* at = &root;
  const std::string own = own_name(key);
  std::string_view rest = own;
  while (true) {
    if (at->is_null()) *at = json::object();
    if (!at->is_object()) {
      throw DataError({.what = in_quotes(key) + " cannot be set inside of " +
                               value_in_message(*at) + "; that should be an object",
                       .where = name});
    }
    const size_t dot = rest.find('.');
    at = &(*at)[std::string(rest.substr(0, dot))];
    if (dot == rest.npos) return *at;
    rest.remove_prefix(dot + 1);
  }
}

void ConfigDocument::refuse(std::string_view key, const json& value,
                            const std::string& should_be) const {
  ErrorInfo info{
      .what = in_quotes(key) + " is " + value_in_message(value) + "; it should be " + should_be,
      .where = source_of(key)};
  if (sources.contains(own_name(key))) throw UsageError(std::move(info));
  throw DataError(std::move(info));
}

}  // namespace accelerate::transformers
