#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

void add_distilbert_layer(ParameterList& list, const std::string& layer, uint64_t width,
                          uint64_t inner) {
  for (const char* name : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
    list.linear(layer + "attention." + name, width, width);
  }
  list.layer_norm(layer + "sa_layer_norm", width);
  list.linear(layer + "ffn.lin1", width, inner);
  list.linear(layer + "ffn.lin2", inner, width);
  list.layer_norm(layer + "output_layer_norm", width);
}

}  // namespace

ModelLayout distilbert_architecture(const ConfigValues& config) {
  const uint64_t width = config.size("dim", 768);
  const uint64_t inner = config.size("hidden_dim", 3072);
  const uint64_t layers = config.layers("n_layers", 6);
  const uint64_t vocabulary = config.size("vocab_size", 30522);
  ModelLayout model{
      .name = known_class(
          config, {"DistilBertModel", "DistilBertForMaskedLM", "DistilBertForQuestionAnswering",
                   "DistilBertForSequenceClassification", "DistilBertForTokenClassification"}),
      .blocks = {{.layers = layers,
                  .hidden = width,
                  .heads = config.size("n_heads", 12),
                  .query_width = width,
                  .key_width = width,
                  .inner = inner}}};
  const std::string prefix = model.name == "DistilBertModel" ? "" : "distilbert.";
  ParameterList list;
  list.embedding(prefix + "embeddings.word_embeddings", vocabulary, width);
  list.embedding(prefix + "embeddings.position_embeddings",
                 config.size("max_position_embeddings", 512), width);
  list.layer_norm(prefix + "embeddings.LayerNorm", width);
  for (uint64_t i = 0; i < layers; ++i) {
    add_distilbert_layer(list, prefix + "transformer.layer." + std::to_string(i) + ".", width,
                         inner);
  }
  if (model.name == "DistilBertForMaskedLM") {
    list.linear("vocab_transform", width, width);
    list.layer_norm("vocab_layer_norm", width);
    list.add("vocab_projector.bias", {vocabulary});
    if (!config.flag("tie_word_embeddings", true)) {
      list.add("vocab_projector.weight", {vocabulary, width});
    }
    model.logits_per_token = vocabulary;
  } else if (model.name == "DistilBertForSequenceClassification") {
    list.linear("pre_classifier", width, width);
    list.linear("classifier", width, config.labels());
  } else if (model.name == "DistilBertForTokenClassification") {
    list.linear("classifier", width, config.labels());
  } else if (model.name == "DistilBertForQuestionAnswering") {
    list.linear("qa_outputs", width, 2);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
