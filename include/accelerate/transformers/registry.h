// The architectures that can be loaded by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/transformers/config.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

enum class ModelTask {
  kBase,
  kSequenceClassification,
  kTokenClassification,
  kCausalLm,
  kMaskedLm,
  kSeq2SeqLm
};

struct Architecture {
  std::string model_type{};  // as in config.json: "bert"
  ModelTask task = ModelTask::kBase;
  std::string name{};  // "BertForSequenceClassification"
  // Makes it with parameters that have no values yet.
  std::function<std::shared_ptr<PretrainedModel>(const ModelConfig&)> make{};
};

// Adds one, for all Auto classes. UsageError if there is one of this type and task. Any thread.
ACCELERATE_EXPORT void register_architecture(Architecture architecture);

template <class Model>
void register_architecture(const std::string& model_type, ModelTask task, const std::string& name) {
  register_architecture({model_type, task, name, [](const ModelConfig& config) {
                           return std::make_shared<Model>(config);
                         }});
}

// All of them, in the order in which they were added.
ACCELERATE_EXPORT std::vector<Architecture> registered_architectures();

}  // namespace accelerate::transformers
