#include "accelerate/transformers/config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/pickle/pickle_text.h"
#include "model_config/document.h"
#include "model_config/json_text.h"
#include "transformers/models/config_document.h"
#include "transformers/pretrained/architecture_choice.h"

namespace accelerate::transformers {

using model_config::Document;
using nlohmann::json;

const Document& document_of(const ModelConfig& config) { return *config.document_; }

ModelConfig::ModelConfig() : document_(std::make_unique<Document>()) {}
ModelConfig::~ModelConfig() = default;
ModelConfig::ModelConfig(const ModelConfig& other)
    : document_(std::make_unique<Document>(*other.document_)) {}
ModelConfig::ModelConfig(ModelConfig&& other) noexcept = default;
ModelConfig& ModelConfig::operator=(const ModelConfig& other) {
  if (this != &other) document_ = std::make_unique<Document>(*other.document_);
  return *this;
}
ModelConfig& ModelConfig::operator=(ModelConfig&& other) noexcept = default;

ModelConfig ModelConfig::from_file(const std::filesystem::path& file) {
  ModelConfig config;
  *config.document_ = Document::read(file);
  return config;
}

ModelConfig ModelConfig::from_json(std::string_view text, const std::string& name) {
  ModelConfig config;
  *config.document_ = Document::parse(text, name);
  return config;
}

std::string ModelConfig::to_json() const { return model_config::python_json(document_->root); }

const std::string& ModelConfig::name() const { return document_->name; }

bool ModelConfig::has(std::string_view key) const { return document_->has(key); }
bool ModelConfig::is_null(std::string_view key) const {
  const std::string own = document_->own_name(key);
  const size_t dot = own.rfind('.');
  const json* parent = dot == own.npos ? &document_->root : document_->find(own.substr(0, dot));
  if (parent == nullptr || !parent->is_object()) return false;
  const auto found = parent->find(own.substr(dot == own.npos ? 0 : dot + 1));
  return found != parent->end() && found->is_null();
}

bool ModelConfig::flag(std::string_view key) const { return document_->flag(key); }
bool ModelConfig::flag(std::string_view key, bool otherwise) const {
  return document_->flag(key, otherwise);
}
int64_t ModelConfig::integer(std::string_view key) const { return document_->integer(key); }
int64_t ModelConfig::integer(std::string_view key, int64_t otherwise) const {
  return document_->integer(key, otherwise);
}
int64_t ModelConfig::size(std::string_view key) const { return document_->size(key); }
int64_t ModelConfig::size(std::string_view key, int64_t otherwise) const {
  return document_->size(key, otherwise);
}
double ModelConfig::number(std::string_view key) const { return document_->number(key); }
double ModelConfig::number(std::string_view key, double otherwise) const {
  return document_->number(key, otherwise);
}
double ModelConfig::non_negative(std::string_view key, double otherwise) const {
  return document_->non_negative(key, otherwise);
}
double ModelConfig::probability(std::string_view key, double otherwise) const {
  return document_->probability(key, otherwise);
}
std::string ModelConfig::text(std::string_view key) const { return document_->text(key); }
std::string ModelConfig::text(std::string_view key, const std::string& otherwise) const {
  return document_->text(key, otherwise);
}
std::vector<int64_t> ModelConfig::integers(std::string_view key) const {
  return document_->integers(key);
}
std::vector<std::string> ModelConfig::texts(std::string_view key) const {
  return document_->texts(key);
}

const std::string& ModelConfig::source_of(std::string_view key) const {
  return document_->source_of(key);
}

void ModelConfig::set(std::string_view key, ConfigValue value, const std::string& source) {
  json made = std::visit([](auto& item) { return json(std::move(item)); }, value);
  const bool writable = !made.is_number_float() || std::isfinite(made.get<double>());
  if (!writable || (made.is_string() && !files::is_utf8(made.get_ref<const std::string&>()))) {
    throw UsageError(
        {.what = in_quotes(key) + " is given " +
                 (writable ? "a text that is not valid UTF-8" : "a number that is not finite"),
         .where = source.empty() ? document_->name : source});
  }
  document_->place(key) = std::move(made);
  // Another model_type has other names.
  if (key == "model_type") document_->use_own_names();
  document_->sources.erase(document_->own_name(key));
  if (!source.empty()) document_->sources.emplace(document_->own_name(key), source);
}

void ModelConfig::set_texts(std::string_view key, const std::vector<std::string>& values) {
  json list = json::array();
  for (const std::string& value : values) {
    if (!files::is_utf8(value)) {
      throw UsageError({.what = in_quotes(key) + " is given a text that is not valid UTF-8",
                        .where = document_->name});
    }
    list.push_back(value);
  }
  document_->place(key) = std::move(list);
  // Names of classes tell the type where model_type does not.
  if (key == "architectures") document_->use_own_names();
}

void ModelConfig::remove(std::string_view key) {
  const size_t dot = key.rfind('.');
  if (dot == key.npos) {
    document_->root.erase(document_->own_name(key));
  } else if (has(key.substr(0, dot))) {
    json& parent = document_->place(key.substr(0, dot));
    if (parent.is_object()) parent.erase(std::string(key.substr(dot + 1)));
  }
}

std::string ModelConfig::model_type() const {
  if (has("model_type")) return text("model_type");
  if (const std::string type = type_of_architectures(architectures()); !type.empty()) return type;
  throw DataError({.what = "the configuration names neither a model_type nor an architecture that "
                           "is supported",
                   .where = document_->name,
                   .hint = "set model_type, \"bert\" for example"});
}

}  // namespace accelerate::transformers
