#include "estimate/model_config.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/model_config.h"

namespace accelerate::estimate {
namespace {

using nlohmann::json;

constexpr uint64_t kMostConfigBytes = 16 << 20;  // vocabularies of labels make some of them long
constexpr int64_t kMostSize = int64_t{1} << 31;
constexpr uint64_t kMostLayers = 4096;
constexpr const char* kOtherFile = "name the config.json of a model, or its .safetensors files";

}  // namespace

ConfigValues::ConfigValues(json values, std::string where)
    : values_(std::move(values)), where_(std::move(where)) {}

ConfigValues ConfigValues::parse(const std::string& text, const std::string& where) {
  try {
    return {files::parse_model_config(text, where), where};
  } catch (const DataError& error) {
    const bool has_hint = !error.hint().empty();
    throw ConfigError(
        {.what = error.message(), .where = where, .hint = has_hint ? error.hint() : kOtherFile});
  }
}

ConfigValues ConfigValues::read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw ConfigError({.what = "the configuration of the model cannot be read",
                       .where = path.string(),
                       .hint = "check that it is a file you can read"});
  }
  const std::string content = text.str();
  if (content.size() > kMostConfigBytes) {
    throw ConfigError({.what = "the file is too large to be the configuration of a model",
                       .where = path.string(),
                       .hint = kOtherFile});
  }
  return parse(content, path.string());
}

void ConfigValues::refuse(const std::string& what, const std::string& hint) const {
  throw ConfigError({.what = what, .where = where_, .hint = hint});
}

uint64_t ConfigValues::size(const char* key, uint64_t preset) const {
  const auto found = values_.find(key);
  if (found == values_.end() || found->is_null()) return preset;
  const bool is_size =
      found->is_number_integer() && found->get<int64_t>() > 0 && found->get<int64_t>() <= kMostSize;
  if (!is_size) {
    refuse(
        std::string(key) + " is " + shortened(found->dump(-1, ' ', true)) + ", which is not a size",
        "use a whole number from 1 to 2147483648");
  }
  return found->get<uint64_t>();
}

uint64_t ConfigValues::layers(const char* key, uint64_t preset) const {
  const uint64_t count = size(key, preset);
  if (count > kMostLayers) {
    refuse(std::string(key) + " is " + std::to_string(count) + ", more layers than any model has",
           "use a whole number from 1 to " + std::to_string(kMostLayers));
  }
  return count;
}

bool ConfigValues::flag(const char* key, bool preset) const {
  const auto found = values_.find(key);
  if (found == values_.end() || found->is_null()) return preset;
  if (!found->is_boolean()) {
    refuse(std::string(key) + " is " + shortened(found->dump(-1, ' ', true)), "use true or false");
  }
  return found->get<bool>();
}

std::string ConfigValues::text(const char* key, const std::string& preset) const {
  const auto found = values_.find(key);
  if (found == values_.end() || found->is_null()) return preset;
  if (!found->is_string()) {
    refuse(std::string(key) + " is " + shortened(found->dump(-1, ' ', true)), "use a string");
  }
  return found->get<std::string>();
}

std::string ConfigValues::architecture() const {
  const auto found = values_.find("architectures");
  const bool is_named =
      found != values_.end() && found->is_array() && !found->empty() && found->front().is_string();
  return is_named ? found->front().get<std::string>() : "";
}

uint64_t ConfigValues::labels() const {
  const auto found = values_.find("id2label");
  if (found != values_.end() && found->is_object() && !found->empty()) return found->size();
  return size("num_labels", 2);
}

}  // namespace accelerate::estimate
