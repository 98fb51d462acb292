#include "estimate/architectures.h"

namespace accelerate::estimate {

ModelLayout roberta_architecture(const ConfigValues& config) {
  ModelLayout model{
      .name = known_class(config,
                          {"RobertaModel", "RobertaForMaskedLM", "RobertaForQuestionAnswering",
                           "RobertaForSequenceClassification", "RobertaForTokenClassification"}),
      .blocks = {bert_blocks(config)}};
  const uint64_t hidden = config.size("hidden_size", 768);
  const uint64_t vocabulary = config.size("vocab_size", 50265);
  const bool is_bare = model.name == "RobertaModel";
  ParameterList list;
  add_bert_encoder(list, is_bare ? "" : "roberta.", config, vocabulary, is_bare);
  if (model.name == "RobertaForMaskedLM") {
    list.linear("lm_head.dense", hidden, hidden);
    list.layer_norm("lm_head.layer_norm", hidden);
    list.add("lm_head.bias", {vocabulary});
    if (!config.flag("tie_word_embeddings", true)) {
      list.add("lm_head.decoder.weight", {vocabulary, hidden});
    }
    model.logits_per_token = vocabulary;
  } else if (model.name == "RobertaForSequenceClassification") {
    list.linear("classifier.dense", hidden, hidden);
    list.linear("classifier.out_proj", hidden, config.labels());
  } else if (model.name == "RobertaForTokenClassification") {
    list.linear("classifier", hidden, config.labels());
  } else if (model.name == "RobertaForQuestionAnswering") {
    list.linear("qa_outputs", hidden, 2);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
