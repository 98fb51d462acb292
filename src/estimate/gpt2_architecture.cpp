#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

// GPT-2 multiplies from the other side: its weights are transposed.
void transposed_linear(ParameterList& list, const std::string& name, uint64_t in, uint64_t out) {
  list.add(name + ".weight", {in, out});
  list.add(name + ".bias", {out});
}

void add_gpt2_layer(ParameterList& list, const std::string& layer, uint64_t width, uint64_t inner) {
  list.layer_norm(layer + "ln_1", width);
  transposed_linear(list, layer + "attn.c_attn", width, 3 * width);
  transposed_linear(list, layer + "attn.c_proj", width, width);
  list.layer_norm(layer + "ln_2", width);
  transposed_linear(list, layer + "mlp.c_fc", width, inner);
  transposed_linear(list, layer + "mlp.c_proj", inner, width);
}

}  // namespace

ModelLayout gpt2_architecture(const ConfigValues& config) {
  const uint64_t width = config.size("n_embd", 768);
  const uint64_t inner = config.size("n_inner", 4 * width);
  const uint64_t layers = config.layers("n_layer", 12);
  const uint64_t vocabulary = config.size("vocab_size", 50257);
  ModelLayout model{.name = known_class(config, {"GPT2Model", "GPT2ForQuestionAnswering",
                                                 "GPT2ForSequenceClassification",
                                                 "GPT2ForTokenClassification", "GPT2LMHeadModel"}),
                    .blocks = {{.layers = layers,
                                .hidden = width,
                                .heads = config.size("n_head", 12),
                                .query_width = width,
                                .key_width = width,
                                .inner = inner}}};
  const std::string prefix = model.name == "GPT2Model" ? "" : "transformer.";
  ParameterList list;
  list.embedding(prefix + "wte", vocabulary, width);
  list.embedding(prefix + "wpe", config.size("n_positions", 1024), width);
  for (uint64_t i = 0; i < layers; ++i) {
    add_gpt2_layer(list, prefix + "h." + std::to_string(i) + ".", width, inner);
  }
  list.layer_norm(prefix + "ln_f", width);
  if (model.name == "GPT2LMHeadModel") {
    if (!config.flag("tie_word_embeddings", true)) list.add("lm_head.weight", {vocabulary, width});
    model.logits_per_token = vocabulary;
  } else if (model.name == "GPT2ForSequenceClassification") {
    list.linear("score", width, config.labels(), false);
  } else if (model.name == "GPT2ForTokenClassification") {
    list.linear("classifier", width, config.labels());
  } else if (model.name == "GPT2ForQuestionAnswering") {
    list.linear("qa_outputs", width, 2);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
