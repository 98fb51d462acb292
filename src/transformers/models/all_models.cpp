#include "transformers/models/all_models.h"

namespace accelerate::transformers {

model_config::Head head_of(ModelTask task) {
  using model_config::Head;
  switch (task) {
    case ModelTask::kBase:
      return Head::kNone;
    case ModelTask::kSequenceClassification:
      return Head::kSequenceClassification;
    case ModelTask::kTokenClassification:
      return Head::kTokenClassification;
    case ModelTask::kCausalLm:
      return Head::kCausalLm;
    case ModelTask::kMaskedLm:
      return Head::kMaskedLm;
    case ModelTask::kSeq2SeqLm:
      return Head::kSeq2SeqLm;
  }
  return Head::kNone;
}

void register_all_models() {
  register_bert();
  register_distilbert();
  register_gpt2();
  register_llama();
  register_roberta();
  register_t5();
  register_t5_heads();
}

}  // namespace accelerate::transformers
