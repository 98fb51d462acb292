#include "model_config/document.h"

#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/durable/mapped_file.h"
#include "model_config/json_text.h"
#include "model_config/model_classes.h"
#include "model_config/parse.h"
#include "model_config/setting_names.h"

namespace accelerate::model_config {

using nlohmann::json;

namespace {

constexpr size_t kMostConfigBytes = size_t{16} << 20;  // names of labels make some of them long

// The type whose names of settings the file uses. A library that has its own name for a known type
// still names its classes.
std::string_view settings_type_of(const json& root) {
  const auto type = root.find("model_type");
  if (type != root.end() && type->is_string()) {
    const std::string_view known = known_type(type->get_ref<const std::string&>());
    if (!known.empty()) return known;
  }
  const auto classes = root.find("architectures");
  if (classes == root.end() || !classes->is_array()) return {};
  for (const json& name : *classes) {
    if (!name.is_string()) continue;
    if (const ModelClass* known = find_class(name.get_ref<const std::string&>())) {
      return known->model_type;
    }
  }
  return {};
}

}  // namespace

Document Document::parse(std::string_view text, const std::string& name) {
  Document document;
  document.root = parse_config(text, name);
  document.name = name;
  document.use_own_names();
  return document;
}

Document Document::read(const std::filesystem::path& file) {
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(file, none);
  const MappedFile mapped(is_folder ? file / "config.json" : file, "the configuration");
  if (mapped.size() > kMostConfigBytes) {
    throw DataError({.what = "the configuration has " + std::to_string(mapped.size()) +
                             " bytes; it should have at most " + std::to_string(kMostConfigBytes),
                     .where = mapped.path().string()});
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes of a text
  return parse({reinterpret_cast<const char*>(mapped.data()), mapped.size()},
               mapped.path().string());
}

std::string Document::own_name(std::string_view key) const {
  return std::string(own_setting_name(settings_type_of(root), key));
}

void Document::use_own_names() {
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

const std::string& Document::source_of(std::string_view key) const {
  const auto found = sources.find(own_name(key));
  return found == sources.end() ? name : found->second;
}

std::string Document::changed_settings(std::initializer_list<const char*> keys) const {
  std::string text;
  for (const std::string key : keys) {
    if (source_of(key) == name) continue;
    text += " ('" + key + "' is that of " + source_of(key) + ")";
  }
  return text;
}

const json* Document::find(std::string_view other_key) const {
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

const json& Document::get(std::string_view key, const char* should_be) const {
  const json* found = find(key);
  if (found != nullptr) return *found;
  throw DataError(
      {.what = in_quotes(key) + " is missing; it should be " + should_be, .where = name});
}

json& Document::place(std::string_view key) {
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

void Document::refuse(std::string_view key, const json& value, const std::string& should_be) const {
  ErrorInfo info{
      .what = in_quotes(key) + " is " + value_in_message(value) + "; it should be " + should_be,
      .where = source_of(key)};
  if (sources.contains(own_name(key))) throw UsageError(std::move(info));
  throw DataError(std::move(info));
}

}  // namespace accelerate::model_config
