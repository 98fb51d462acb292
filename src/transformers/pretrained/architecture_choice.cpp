#include "transformers/pretrained/architecture_choice.h"

#include <set>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "base/word_list.h"

namespace accelerate::transformers {

const char* auto_class_name(ModelTask task) {
  switch (task) {
    case ModelTask::kBase:
      return "AutoModel";
    case ModelTask::kSequenceClassification:
      return "AutoModelForSequenceClassification";
    case ModelTask::kTokenClassification:
      return "AutoModelForTokenClassification";
    case ModelTask::kCausalLm:
      return "AutoModelForCausalLM";
    case ModelTask::kMaskedLm:
      return "AutoModelForMaskedLM";
    case ModelTask::kSeq2SeqLm:
      return "AutoModelForSeq2SeqLM";
  }
  return "AutoModel";
}

std::string type_of_architectures(const std::vector<std::string>& names) {
  const std::vector<Architecture> all = registered_architectures();
  for (const std::string& name : names) {
    for (const Architecture& each : all) {
      if (each.name == name) return each.model_type;
    }
  }
  return {};
}

Architecture choose_architecture(ModelTask task, const ModelConfig& config) {
  const std::vector<Architecture> all = registered_architectures();
  std::set<std::string> types;
  for (const Architecture& each : all) types.insert(each.model_type);
  std::string type = config.text("model_type", "");
  if (!types.contains(type)) {
    // A model of a library that has its own name for a known architecture.
    if (const std::string known = type_of_architectures(config.architectures()); !known.empty()) {
      type = known;
    }
  }
  if (!types.contains(type)) {
    throw DataError(
        {.what = type.empty() ? "\"model_type\" is missing, and \"architectures\" names none that "
                                "is supported"
                              : "the model type " + in_quotes(type) + " is not supported",
         .where = config.name(),
         .hint = "known: " + joined(types) + "; register_architecture() adds others"});
  }
  std::set<std::string> offers;
  for (const Architecture& each : all) {
    if (each.model_type != type) continue;
    if (each.task == task) return each;
    offers.insert(each.name + " (" + auto_class_name(each.task) + ")");
  }
  throw DataError({.what = "there is no " + std::string(auto_class_name(task)) +
                           " for the model type " + in_quotes(type),
                   .where = config.name(),
                   .hint = "it offers " + joined(offers)});
}

}  // namespace accelerate::transformers
