#include <algorithm>

#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

struct Biases {
  bool in_attention = false;
  bool in_feed_forward = false;
};

void add_llama_layer(ParameterList& list, const std::string& layer, const BlockDimensions& block,
                     const Biases& biases) {
  const uint64_t hidden = block.hidden;
  list.linear(layer + "self_attn.q_proj", hidden, block.query_width, biases.in_attention);
  list.linear(layer + "self_attn.k_proj", hidden, block.key_width, biases.in_attention);
  list.linear(layer + "self_attn.v_proj", hidden, block.key_width, biases.in_attention);
  list.linear(layer + "self_attn.o_proj", block.query_width, hidden, biases.in_attention);
  list.linear(layer + "mlp.gate_proj", hidden, block.inner, biases.in_feed_forward);
  list.linear(layer + "mlp.up_proj", hidden, block.inner, biases.in_feed_forward);
  list.linear(layer + "mlp.down_proj", block.inner, hidden, biases.in_feed_forward);
  list.rms_norm(layer + "input_layernorm", hidden);
  list.rms_norm(layer + "post_attention_layernorm", hidden);
}

BlockDimensions llama_blocks(const ConfigValues& config) {
  const uint64_t hidden = config.size("hidden_size", 4096);
  const uint64_t heads = config.size("num_attention_heads", 32);
  const uint64_t head_width = config.size("head_dim", std::max<uint64_t>(1, hidden / heads));
  return {.layers = config.layers("num_hidden_layers", 32),
          .hidden = hidden,
          .heads = heads,
          .query_width = heads * head_width,
          .key_width = config.size("num_key_value_heads", heads) * head_width,
          .inner = config.size("intermediate_size", 11008),
          .is_gated = true,
          .has_dropout = false};
}

}  // namespace

ModelLayout llama_architecture(const ConfigValues& config) {
  const BlockDimensions block = llama_blocks(config);
  const uint64_t vocabulary = config.size("vocab_size", 32000);
  const Biases biases{.in_attention = config.flag("attention_bias", false),
                      .in_feed_forward = config.flag("mlp_bias", false)};
  ModelLayout model{.name = known_class(
                        config, {"LlamaModel", "LlamaForCausalLM", "LlamaForQuestionAnswering",
                                 "LlamaForSequenceClassification", "LlamaForTokenClassification"}),
                    .blocks = {block}};
  // Of the heads, that for questions alone calls the model by another name.
  const std::string prefix = model.name == "LlamaModel"                  ? ""
                             : model.name == "LlamaForQuestionAnswering" ? "transformer."
                                                                         : "model.";
  ParameterList list;
  list.embedding(prefix + "embed_tokens", vocabulary, block.hidden);
  for (uint64_t i = 0; i < block.layers; ++i) {
    add_llama_layer(list, prefix + "layers." + std::to_string(i) + ".", block, biases);
  }
  list.rms_norm(prefix + "norm", block.hidden);
  if (model.name == "LlamaForCausalLM") {
    if (!config.flag("tie_word_embeddings", false)) {
      list.add("lm_head.weight", {vocabulary, block.hidden});
    }
    model.logits_per_token = vocabulary;
  } else if (model.name == "LlamaForSequenceClassification") {
    list.linear("score", block.hidden, config.labels(), false);
  } else if (model.name == "LlamaForTokenClassification") {
    list.linear("score", block.hidden, config.labels());
  } else if (model.name == "LlamaForQuestionAnswering") {
    list.linear("qa_outputs", block.hidden, 2);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
