#include "estimate/architectures.h"

namespace accelerate::estimate {

ModelLayout roberta_layout(const model_config::BertSizes& sizes, Head head, int64_t labels) {
  ModelLayout model{.blocks = {plain_blocks(sizes)}};
  const bool is_bare = head == Head::kNone;
  ParameterList list;
  add_bert_encoder(list, is_bare ? "" : "roberta.", sizes, is_bare);
  if (head == Head::kMaskedLm) {
    list.linear("lm_head.dense", sizes.width, sizes.width);
    list.layer_norm("lm_head.layer_norm", sizes.width);
    list.add("lm_head.bias", {sizes.vocabulary});
    if (!sizes.tied_words) list.linear("lm_head.decoder", sizes.width, sizes.vocabulary);
    model.logits_per_token = sizes.vocabulary;
  } else if (head == Head::kSequenceClassification) {
    list.linear("classifier.dense", sizes.width, sizes.width);
    list.linear("classifier.out_proj", sizes.width, labels);
  } else {
    add_token_head(list, head, sizes.width, labels);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
