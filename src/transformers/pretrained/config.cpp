#include "accelerate/transformers/config.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/durable/mapped_file.h"
#include "files/model_config.h"
#include "files/pickle/pickle_text.h"
#include "transformers/pretrained/architecture_choice.h"
#include "transformers/pretrained/config_document.h"
#include "transformers/pretrained/config_json.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();
constexpr const char* kAnyInteger = "a whole number";
constexpr const char* kSize = "a whole number from 1 to 2147483647";
constexpr const char* kNumber = "a number";
constexpr const char* kProbability = "a number from 0 to 1";
constexpr const char* kFlag = "true or false";
constexpr const char* kText = "a text";

using Document = ConfigDocument;

bool flag_of(const Document& document, std::string_view key, const json& value) {
  if (!value.is_boolean()) document.refuse(key, value, kFlag);
  return value.get<bool>();
}

int64_t integer_of(const Document& document, std::string_view key, const json& value) {
  if (!value.is_number_integer()) document.refuse(key, value, kAnyInteger);
  return value.get<int64_t>();
}

int64_t size_of(const Document& document, std::string_view key, const json& value) {
  if (!value.is_number_integer()) document.refuse(key, value, kSize);
  const auto number = value.get<int64_t>();
  if (number < 1 || number > kLargestSize) document.refuse(key, value, kSize);
  return number;
}

double number_of(const Document& document, std::string_view key, const json& value) {
  if (!value.is_number()) document.refuse(key, value, kNumber);
  return value.get<double>();
}

std::string text_of(const Document& document, std::string_view key, const json& value) {
  if (!value.is_string()) document.refuse(key, value, kText);
  return value.get<std::string>();
}

}  // namespace

ModelConfig::ModelConfig() : document_(std::make_unique<ConfigDocument>()) {}
ModelConfig::~ModelConfig() = default;
ModelConfig::ModelConfig(const ModelConfig& other)
    : document_(std::make_unique<ConfigDocument>(*other.document_)) {}
ModelConfig::ModelConfig(ModelConfig&& other) noexcept = default;
ModelConfig& ModelConfig::operator=(const ModelConfig& other) {
  if (this != &other) document_ = std::make_unique<ConfigDocument>(*other.document_);
  return *this;
}
ModelConfig& ModelConfig::operator=(ModelConfig&& other) noexcept = default;

ModelConfig ModelConfig::from_file(const std::filesystem::path& file) {
  const bool is_folder = std::filesystem::is_directory(file);
  const MappedFile mapped(is_folder ? file / "config.json" : file, "the configuration");
  if (mapped.size() > kMostBytes) {
    throw DataError({.what = "the configuration has " + std::to_string(mapped.size()) +
                             " bytes; it should have at most " + std::to_string(kMostBytes),
                     .where = mapped.path().string()});
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes of a text
  return from_json({reinterpret_cast<const char*>(mapped.data()), mapped.size()},
                   mapped.path().string());
}

ModelConfig ModelConfig::from_json(std::string_view text, const std::string& name) {
  ModelConfig config;
  config.document_->root = files::parse_model_config(text, name);
  config.document_->name = name;
  config.document_->use_own_names();
  return config;
}

std::string ModelConfig::to_json() const { return python_json(document_->root); }

const std::string& ModelConfig::name() const { return document_->name; }

bool ModelConfig::has(std::string_view key) const { return document_->find(key) != nullptr; }
bool ModelConfig::is_null(std::string_view key) const {
  const std::string own = document_->own_name(key);
  const size_t dot = own.rfind('.');
  const json* parent = dot == own.npos ? &document_->root : document_->find(own.substr(0, dot));
  if (parent == nullptr || !parent->is_object()) return false;
  const auto found = parent->find(own.substr(dot == own.npos ? 0 : dot + 1));
  return found != parent->end() && found->is_null();
}

bool ModelConfig::flag(std::string_view key) const {
  return flag_of(*document_, key, document_->get(key, kFlag));
}
bool ModelConfig::flag(std::string_view key, bool otherwise) const {
  const json* found = document_->find(key);
  return found == nullptr ? otherwise : flag_of(*document_, key, *found);
}

int64_t ModelConfig::integer(std::string_view key) const {
  return integer_of(*document_, key, document_->get(key, kAnyInteger));
}
int64_t ModelConfig::integer(std::string_view key, int64_t otherwise) const {
  const json* found = document_->find(key);
  return found == nullptr ? otherwise : integer_of(*document_, key, *found);
}

int64_t ModelConfig::size(std::string_view key) const {
  return size_of(*document_, key, document_->get(key, kSize));
}
int64_t ModelConfig::size(std::string_view key, int64_t otherwise) const {
  const json* found = document_->find(key);
  return found == nullptr ? otherwise : size_of(*document_, key, *found);
}

double ModelConfig::number(std::string_view key) const {
  return number_of(*document_, key, document_->get(key, kNumber));
}
double ModelConfig::number(std::string_view key, double otherwise) const {
  const json* found = document_->find(key);
  return found == nullptr ? otherwise : number_of(*document_, key, *found);
}

double ModelConfig::non_negative(std::string_view key, double otherwise) const {
  const double value = number(key, otherwise);
  if (value < 0) document_->refuse(key, *document_->find(key), "a number that is 0 or more");
  return value;
}

double ModelConfig::probability(std::string_view key, double otherwise) const {
  const json* found = document_->find(key);
  if (found == nullptr) return otherwise;
  if (!found->is_number()) document_->refuse(key, *found, kProbability);
  const auto value = found->get<double>();
  if (!(value >= 0 && value <= 1)) document_->refuse(key, *found, kProbability);
  return value;
}

std::string ModelConfig::text(std::string_view key) const {
  return text_of(*document_, key, document_->get(key, kText));
}
std::string ModelConfig::text(std::string_view key, const std::string& otherwise) const {
  const json* found = document_->find(key);
  return found == nullptr ? otherwise : text_of(*document_, key, *found);
}

std::vector<int64_t> ModelConfig::integers(std::string_view key) const {
  const json* found = document_->find(key);
  std::vector<int64_t> values;
  if (found == nullptr) return values;
  if (!found->is_array()) return {integer_of(*document_, key, *found)};
  for (const json& item : *found) {
    if (!item.is_number_integer()) {
      document_->refuse(key, *found, "a whole number or a list of them");
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

std::vector<std::string> ModelConfig::texts(std::string_view key) const {
  const json* found = document_->find(key);
  std::vector<std::string> values;
  if (found == nullptr) return values;
  if (!found->is_array()) document_->refuse(key, *found, "a list of texts");
  for (const json& item : *found) {
    if (!item.is_string()) document_->refuse(key, *found, "a list of texts");
    values.push_back(item.get<std::string>());
  }
  return values;
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
