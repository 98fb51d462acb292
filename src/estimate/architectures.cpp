#include "estimate/architectures.h"

#include <functional>
#include <map>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "base/word_list.h"

namespace accelerate::estimate {
namespace {

using model_config::Document;
using model_config::ModelClass;

constexpr const char* kOtherFile = "name the config.json of a model, or its .safetensors files";
constexpr const char* kWeightsInstead = "; for any other model name its .safetensors files";

using Describe = std::function<ModelLayout(const Document&, Head, int64_t labels)>;

template <class Sizes>
Describe describer(Sizes (*sizes)(const Document&),
                   ModelLayout (*layout)(const Sizes&, Head, int64_t)) {
  return [=](const Document& config, Head head, int64_t labels) {
    return layout(sizes(config), head, labels);
  };
}

const std::map<std::string_view, Describe>& describers() {
  static const std::map<std::string_view, Describe> table = {
      {"bert", describer(model_config::bert_sizes, bert_layout)},
      {"distilbert", describer(model_config::distilbert_sizes, distilbert_layout)},
      {"gpt2", describer(model_config::gpt2_sizes, gpt2_layout)},
      {"llama", describer(model_config::llama_sizes, llama_layout)},
      {"roberta", describer(model_config::roberta_sizes, roberta_layout)},
      {"t5", describer(model_config::t5_sizes, t5_layout)},
  };
  return table;
}

std::string known_types() {
  std::vector<std::string_view> types;
  for (const auto& [type, describe] : describers()) types.push_back(type);
  return joined(types);
}

std::string known_classes(std::string_view type) {
  std::vector<std::string_view> names;
  for (const ModelClass& each : model_config::model_classes()) {
    if (each.model_type == type) names.push_back(each.name);
  }
  return joined(names);
}

const ModelClass& class_named_in(const Document& config) {
  const std::vector<std::string> names = config.texts("architectures");
  const ModelClass* first = names.empty() ? nullptr : model_config::find_class(names.front());
  const std::string type = config.text("model_type", "");
  const std::string_view known = model_config::known_type(type);
  if (known.empty()) {
    // A library that has its own name for a known type.
    if (first != nullptr) return *first;
    throw DataError({.what = type.empty() ? "the file has no model_type"
                                          : "the model_type " + in_quotes(type) + " is not known",
                     .where = config.name,
                     .hint = "known: " + known_types() + kWeightsInstead});
  }
  if (names.empty()) return model_config::class_of(known, Head::kNone);
  if (first != nullptr && first->model_type == known) return *first;
  throw DataError({.what = "the class " + in_quotes(names.front()) + " is not known",
                   .where = config.name,
                   .hint = "known: " + known_classes(known) + kWeightsInstead});
}

ModelLayout described(const Document& config) {
  const ModelClass& model_class = class_named_in(config);
  const Head head = model_class.head;
  const bool has_labels =
      head == Head::kSequenceClassification || head == Head::kTokenClassification;
  const Describe& describe = describers().at(model_class.model_type);
  ModelLayout model = describe(config, head, has_labels ? config.label_count() : 0);
  model.name = model_class.name;
  return model;
}

// To the user of the program a file that cannot be used is a wrong setting of his.
template <class Read>
ModelLayout with_config_errors(const std::string& name, const Read& read) {
  try {
    return described(read());
  } catch (const DataError& error) {
    throw ConfigError({.what = error.message(),
                       .where = error.where().empty() ? name : error.where(),
                       .hint = error.hint().empty() ? kOtherFile : error.hint()});
  }
}

}  // namespace

ModelLayout read_architecture(const std::filesystem::path& config) {
  return with_config_errors(config.string(), [&] { return Document::read(config); });
}

ModelLayout parse_architecture(std::string_view text, const std::string& name) {
  return with_config_errors(name, [&] { return Document::parse(text, name); });
}

std::string named_class(const std::filesystem::path& config) {
  try {
    const std::vector<std::string> names = Document::read(config).texts("architectures");
    return names.empty() ? "" : names.front();
  } catch (const DataError&) {
    return "";
  }
}

void add_token_head(ParameterList& list, Head head, int64_t width, int64_t labels) {
  if (head == Head::kTokenClassification) list.linear("classifier", width, labels);
  if (head == Head::kQuestionAnswering) list.linear("qa_outputs", width, 2);
}

}  // namespace accelerate::estimate
