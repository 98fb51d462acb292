#include "config/sharding/deepspeed_document.h"

#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"

namespace accelerate::config {
namespace {

// Takes the first part of a dotted key off `rest`.
std::string first_part(std::string_view& rest) {
  const size_t dot = rest.find('.');
  const std::string part(rest.substr(0, dot));
  rest.remove_prefix(dot == rest.npos ? rest.size() : dot + 1);
  return part;
}

}  // namespace

const nlohmann::json* DeepspeedDocument::find(std::string_view key) const {
  const nlohmann::json* node = &values;
  while (!key.empty()) {
    if (!node->is_object()) return nullptr;
    const auto found = node->find(first_part(key));
    if (found == node->end() || found->is_null()) return nullptr;
    node = &*found;
  }
  return node;
}

bool DeepspeedDocument::is_auto(std::string_view key) const {
  const nlohmann::json* node = find(key);
  return node != nullptr && *node == "auto";
}

std::string DeepspeedDocument::place_of(std::string_view key) const {
  const auto found = places.find(key);
  return found != places.end() ? found->second : name + ": " + shortened(key);
}

void DeepspeedDocument::set(std::string_view key, nlohmann::json value, const std::string& place) {
  nlohmann::json* node = &values;
  std::string_view rest = key;
  while (!rest.empty()) {
    nlohmann::json& child = (*node)[first_part(rest)];
    if (!rest.empty() && child.is_null()) child = nlohmann::json::object();
    if (!rest.empty() && !child.is_object()) {
      const std::string section(key.substr(0, key.size() - rest.size() - 1));
      throw ConfigError({.what = section + " must be an object", .where = place_of(section)});
    }
    node = &child;
  }
  *node = std::move(value);
  places[std::string(key)] = place;
}

const char* bf16_section(const DeepspeedDocument& document) {
  if (document.find("bfloat16") == nullptr) return "bf16";
  if (document.find("bf16") == nullptr) return "bfloat16";
  refuse_contradiction("bfloat16 is the older name of bf16", document.place_of("bfloat16"),
                       document.place_of("bf16"), "leave bfloat16 out");
}

std::string value_text(const nlohmann::json& value) {
  return shortened(value.is_string()
                       ? value.get_ref<const std::string&>()
                       : value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace accelerate::config
