#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

void add_distilbert_layer(ParameterList& list, const std::string& layer, int64_t width,
                          int64_t inner) {
  for (const char* name : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
    list.linear(layer + "attention." + name, width, width);
  }
  list.layer_norm(layer + "sa_layer_norm", width);
  list.linear(layer + "ffn.lin1", width, inner);
  list.linear(layer + "ffn.lin2", inner, width);
  list.layer_norm(layer + "output_layer_norm", width);
}

}  // namespace

ModelLayout distilbert_layout(const model_config::DistilBertSizes& sizes, Head head,
                              int64_t labels) {
  const int64_t width = sizes.width;
  ModelLayout model{.blocks = {plain_blocks(sizes)}};
  const std::string prefix = head == Head::kNone ? "" : "distilbert.";
  ParameterList list;
  list.embedding(prefix + "embeddings.word_embeddings", sizes.vocabulary, width);
  list.embedding(prefix + "embeddings.position_embeddings", sizes.positions, width);
  list.layer_norm(prefix + "embeddings.LayerNorm", width);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    add_distilbert_layer(list, prefix + "transformer.layer." + std::to_string(i) + ".", width,
                         sizes.inner_width);
  }
  if (head == Head::kMaskedLm) {
    list.linear("vocab_transform", width, width);
    list.layer_norm("vocab_layer_norm", width);
    list.add("vocab_projector.bias", {sizes.vocabulary});
    if (!sizes.tied_words) list.add("vocab_projector.weight", {sizes.vocabulary, width});
    model.logits_per_token = sizes.vocabulary;
  } else if (head == Head::kSequenceClassification) {
    list.linear("pre_classifier", width, width);
    list.linear("classifier", width, labels);
  } else {
    add_token_head(list, head, width, labels);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
