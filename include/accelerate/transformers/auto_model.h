// Models by checkpoint name.
//
//   auto model = AutoModelForSequenceClassification::from_pretrained("folder", {.num_labels = 2});
#pragma once

#include <memory>
#include <string>

#include "accelerate/transformers/config.h"
#include "accelerate/transformers/model.h"
#include "accelerate/transformers/pretrained.h"
#include "accelerate/transformers/registry.h"

namespace accelerate::transformers {

template <ModelTask task>
struct AutoModelFor {
  // The model of a folder, or of a name on the Hugging Face hub that is in the local cache, in
  // eval() mode. See load_pretrained().
  static std::shared_ptr<PretrainedModel> from_pretrained(const std::string& name_or_folder,
                                                          const PretrainedOptions& options = {}) {
    return load_pretrained(task, name_or_folder, options);
  }
  // A new model, with random values, in train() mode.
  static std::shared_ptr<PretrainedModel> from_config(const ModelConfig& config) {
    return make_model(task, config);
  }
};

using AutoModel = AutoModelFor<ModelTask::kBase>;
using AutoModelForSequenceClassification = AutoModelFor<ModelTask::kSequenceClassification>;
using AutoModelForTokenClassification = AutoModelFor<ModelTask::kTokenClassification>;
using AutoModelForCausalLM = AutoModelFor<ModelTask::kCausalLm>;
using AutoModelForMaskedLM = AutoModelFor<ModelTask::kMaskedLm>;
using AutoModelForSeq2SeqLM = AutoModelFor<ModelTask::kSeq2SeqLm>;

}  // namespace accelerate::transformers
