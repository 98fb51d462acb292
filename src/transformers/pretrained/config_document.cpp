#include "transformers/pretrained/config_document.h"

#include "accelerate/errors.h"
#include "files/json_text.h"
#include "transformers/pretrained/config_json.h"

namespace accelerate::transformers {

using files::in_quotes;
using nlohmann::json;

const json* ConfigDocument::find(std::string_view key) const {
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
  std::string_view rest = key;
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
  throw DataError(
      {.what = in_quotes(key) + " is " + value_in_message(value) + "; it should be " + should_be,
       .where = name});
}

}  // namespace accelerate::transformers
