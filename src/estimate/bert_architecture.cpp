#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

using model_config::BertSizes;

// Heads that classify tokens or predict them do without the pooler.
bool has_pooler(Head head) {
  return head == Head::kNone || head == Head::kSequenceClassification ||
         head == Head::kMultipleChoice || head == Head::kNextSentencePrediction ||
         head == Head::kPreTraining;
}

void add_predictions(ParameterList& list, const BertSizes& sizes) {
  list.linear("cls.predictions.transform.dense", sizes.width, sizes.width);
  list.layer_norm("cls.predictions.transform.LayerNorm", sizes.width);
  list.add("cls.predictions.bias", {sizes.vocabulary});
  if (!sizes.tied_words) list.linear("cls.predictions.decoder", sizes.width, sizes.vocabulary);
}

}  // namespace

void add_bert_encoder(ParameterList& list, const std::string& prefix, const BertSizes& sizes,
                      bool has_pooler) {
  const int64_t width = sizes.width;
  const std::string embeddings = prefix + "embeddings.";
  list.embedding(embeddings + "word_embeddings", sizes.vocabulary, width);
  list.embedding(embeddings + "position_embeddings", sizes.positions, width);
  list.embedding(embeddings + "token_type_embeddings", sizes.token_types, width);
  list.layer_norm(embeddings + "LayerNorm", width);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = prefix + "encoder.layer." + std::to_string(i) + ".";
    list.linear(layer + "attention.self.query", width, width);
    list.linear(layer + "attention.self.key", width, width);
    list.linear(layer + "attention.self.value", width, width);
    list.linear(layer + "attention.output.dense", width, width);
    list.layer_norm(layer + "attention.output.LayerNorm", width);
    list.linear(layer + "intermediate.dense", width, sizes.inner_width);
    list.linear(layer + "output.dense", sizes.inner_width, width);
    list.layer_norm(layer + "output.LayerNorm", width);
  }
  if (has_pooler) list.linear(prefix + "pooler.dense", width, width);
}

ModelLayout bert_layout(const BertSizes& sizes, Head head, int64_t labels) {
  ModelLayout model{.blocks = {plain_blocks(sizes)}};
  ParameterList list;
  add_bert_encoder(list, head == Head::kNone ? "" : "bert.", sizes, has_pooler(head));
  if (head == Head::kMaskedLm || head == Head::kPreTraining) {
    add_predictions(list, sizes);
    model.logits_per_token = sizes.vocabulary;
  }
  if (head == Head::kPreTraining || head == Head::kNextSentencePrediction) {
    list.linear("cls.seq_relationship", sizes.width, 2);
  } else if (head == Head::kMultipleChoice) {
    list.linear("classifier", sizes.width, 1);
  } else if (head == Head::kSequenceClassification) {
    list.linear("classifier", sizes.width, labels);
  } else {
    add_token_head(list, head, sizes.width, labels);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
