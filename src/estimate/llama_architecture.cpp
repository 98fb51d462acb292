#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

using model_config::LlamaSizes;

BlockDimensions llama_blocks(const LlamaSizes& sizes) {
  return {.layers = sizes.layers,
          .hidden = sizes.width,
          .heads = sizes.heads,
          .query_width = sizes.heads * sizes.head_width,
          .key_width = sizes.key_heads * sizes.head_width,
          .inner = sizes.inner_width,
          .is_gated = true,
          .has_dropout = false};
}

void add_llama_layer(ParameterList& list, const std::string& layer, const LlamaSizes& sizes) {
  const BlockDimensions block = llama_blocks(sizes);
  const int64_t hidden = block.hidden;
  list.linear(layer + "self_attn.q_proj", hidden, block.query_width, sizes.attention_bias);
  list.linear(layer + "self_attn.k_proj", hidden, block.key_width, sizes.attention_bias);
  list.linear(layer + "self_attn.v_proj", hidden, block.key_width, sizes.attention_bias);
  list.linear(layer + "self_attn.o_proj", block.query_width, hidden, sizes.attention_bias);
  list.linear(layer + "mlp.gate_proj", hidden, block.inner, sizes.mlp_bias);
  list.linear(layer + "mlp.up_proj", hidden, block.inner, sizes.mlp_bias);
  list.linear(layer + "mlp.down_proj", block.inner, hidden, sizes.mlp_bias);
  list.rms_norm(layer + "input_layernorm", hidden);
  list.rms_norm(layer + "post_attention_layernorm", hidden);
}

// Of the heads, that for questions alone calls the model by another name.
std::string llama_prefix(Head head) {
  if (head == Head::kNone) return "";
  return head == Head::kQuestionAnswering ? "transformer." : "model.";
}

}  // namespace

ModelLayout llama_layout(const LlamaSizes& sizes, Head head, int64_t labels) {
  ModelLayout model{.blocks = {llama_blocks(sizes)}};
  const std::string prefix = llama_prefix(head);
  ParameterList list;
  list.embedding(prefix + "embed_tokens", sizes.vocabulary, sizes.width);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    add_llama_layer(list, prefix + "layers." + std::to_string(i) + ".", sizes);
  }
  list.rms_norm(prefix + "norm", sizes.width);
  if (head == Head::kCausalLm) {
    if (!sizes.tied_words) list.add("lm_head.weight", {sizes.vocabulary, sizes.width});
    model.logits_per_token = sizes.vocabulary;
  } else if (head == Head::kSequenceClassification) {
    list.linear("score", sizes.width, labels, false);
  } else if (head == Head::kTokenClassification) {
    list.linear("score", sizes.width, labels);
  } else if (head == Head::kQuestionAnswering) {
    list.linear("qa_outputs", sizes.width, 2);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
