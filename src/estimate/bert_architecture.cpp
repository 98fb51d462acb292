#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

// Heads that classify tokens or predict them do without the pooler.
bool has_pooler(const std::string& name) {
  return name == "BertModel" || name == "BertForSequenceClassification" ||
         name == "BertForMultipleChoice" || name == "BertForNextSentencePrediction" ||
         name == "BertForPreTraining";
}

void add_predictions(ParameterList& list, const ConfigValues& config, uint64_t vocabulary) {
  const uint64_t hidden = config.size("hidden_size", 768);
  list.linear("cls.predictions.transform.dense", hidden, hidden);
  list.layer_norm("cls.predictions.transform.LayerNorm", hidden);
  list.add("cls.predictions.bias", {vocabulary});
  if (!config.flag("tie_word_embeddings", true)) {
    list.add("cls.predictions.decoder.weight", {vocabulary, hidden});
  }
}

}  // namespace

void add_bert_encoder(ParameterList& list, const std::string& prefix, const ConfigValues& config,
                      uint64_t vocabulary, bool has_pooler) {
  const uint64_t hidden = config.size("hidden_size", 768);
  const uint64_t inner = config.size("intermediate_size", 3072);
  const std::string embeddings = prefix + "embeddings.";
  list.embedding(embeddings + "word_embeddings", vocabulary, hidden);
  list.embedding(embeddings + "position_embeddings", config.size("max_position_embeddings", 512),
                 hidden);
  list.embedding(embeddings + "token_type_embeddings", config.size("type_vocab_size", 2), hidden);
  list.layer_norm(embeddings + "LayerNorm", hidden);
  for (uint64_t i = 0; i < config.layers("num_hidden_layers", 12); ++i) {
    const std::string layer = prefix + "encoder.layer." + std::to_string(i) + ".";
    list.linear(layer + "attention.self.query", hidden, hidden);
    list.linear(layer + "attention.self.key", hidden, hidden);
    list.linear(layer + "attention.self.value", hidden, hidden);
    list.linear(layer + "attention.output.dense", hidden, hidden);
    list.layer_norm(layer + "attention.output.LayerNorm", hidden);
    list.linear(layer + "intermediate.dense", hidden, inner);
    list.linear(layer + "output.dense", inner, hidden);
    list.layer_norm(layer + "output.LayerNorm", hidden);
  }
  if (has_pooler) list.linear(prefix + "pooler.dense", hidden, hidden);
}

BlockDimensions bert_blocks(const ConfigValues& config) {
  const uint64_t hidden = config.size("hidden_size", 768);
  return {.layers = config.layers("num_hidden_layers", 12),
          .hidden = hidden,
          .heads = config.size("num_attention_heads", 12),
          .query_width = hidden,
          .key_width = hidden,
          .inner = config.size("intermediate_size", 3072)};
}

ModelLayout bert_architecture(const ConfigValues& config) {
  ModelLayout model{
      .name = known_class(config, {"BertModel", "BertForMaskedLM", "BertForMultipleChoice",
                                   "BertForNextSentencePrediction", "BertForPreTraining",
                                   "BertForQuestionAnswering", "BertForSequenceClassification",
                                   "BertForTokenClassification"}),
      .blocks = {bert_blocks(config)}};
  const uint64_t hidden = config.size("hidden_size", 768);
  const uint64_t vocabulary = config.size("vocab_size", 30522);
  ParameterList list;
  add_bert_encoder(list, model.name == "BertModel" ? "" : "bert.", config, vocabulary,
                   has_pooler(model.name));
  const bool predicts_tokens =
      model.name == "BertForMaskedLM" || model.name == "BertForPreTraining";
  if (predicts_tokens) {
    add_predictions(list, config, vocabulary);
    model.logits_per_token = vocabulary;
  }
  if (model.name == "BertForPreTraining" || model.name == "BertForNextSentencePrediction") {
    list.linear("cls.seq_relationship", hidden, 2);
  } else if (model.name == "BertForMultipleChoice") {
    list.linear("classifier", hidden, 1);
  } else if (model.name == "BertForQuestionAnswering") {
    list.linear("qa_outputs", hidden, 2);
  } else if (model.name.ends_with("Classification")) {
    list.linear("classifier", hidden, config.labels());
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
