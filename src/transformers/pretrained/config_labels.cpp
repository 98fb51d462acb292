// The settings whose meaning is more than their value: the classes and the type of numbers.
#include <charconv>
#include <set>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/transformers/config.h"
#include "base/message_text.h"
#include "files/pickle/pickle_text.h"
#include "model_config/document.h"
#include "transformers/pretrained/dtype_names.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

std::string default_label(int64_t number) { return "LABEL_" + std::to_string(number); }

}  // namespace

std::optional<at::ScalarType> ModelConfig::dtype() const {
  const std::string key = has("dtype") ? "dtype" : "torch_dtype";
  const json* found = document_->find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) {
    if (const auto dtype = dtype_of_name(found->get_ref<const std::string&>())) return dtype;
  }
  document_->refuse(key, *found, "\"float32\", \"float16\", \"bfloat16\" or \"float64\"");
}

// As in Python: a number that contradicts the names makes new names.
std::map<int64_t, std::string> ModelConfig::id2label() const {
  const int64_t count = document_->label_count();
  const json* names = document_->find("id2label");
  std::map<int64_t, std::string> labels;
  if (names == nullptr || static_cast<int64_t>(names->size()) != count) {
    for (int64_t i = 0; i < count; ++i) labels.emplace(i, default_label(i));
    return labels;
  }
  for (const auto& [key, value] : names->items()) {
    int64_t number = 0;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), number);
    const bool is_number = end.ec == std::errc() && end.ptr == key.data() + key.size();
    if (!is_number || (!value.is_string() && !value.is_number_integer())) {
      document_->refuse("id2label." + key, value, "the name of the class of that number");
    }
    labels[number] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return labels;
}

std::vector<std::string> ModelConfig::labels() const {
  const std::map<int64_t, std::string> named = id2label();
  std::vector<std::string> labels;
  for (int64_t i = 0; i < static_cast<int64_t>(named.size()); ++i) {
    const auto found = named.find(i);
    labels.push_back(found == named.end() ? default_label(i) : found->second);
  }
  return labels;
}

void ModelConfig::set_labels(const std::vector<std::string>& names) {
  document_->checked_label_count(static_cast<int64_t>(names.size()));
  json id2label = json::object();
  json label2id = json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!files::is_utf8(names[i])) {
      throw UsageError({.what = "the name of class " + std::to_string(i) + " is not valid UTF-8",
                        .where = document_->name});
    }
    if (!label2id.emplace(names[i], i).second) {
      throw UsageError(
          {.what = "two classes have the name " + in_quotes(names[i]), .where = document_->name});
    }
    id2label[std::to_string(i)] = names[i];
  }
  document_->root["id2label"] = std::move(id2label);
  document_->root["label2id"] = std::move(label2id);
  document_->root.erase("num_labels");
}

void ModelConfig::set_num_labels(int64_t count) {
  document_->checked_label_count(count);
  document_->root.erase("num_labels");
  const json* names = document_->find("id2label");
  if (names != nullptr && static_cast<int64_t>(names->size()) == count) return;
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(default_label(i));
  set_labels(labels);
}

}  // namespace accelerate::transformers
