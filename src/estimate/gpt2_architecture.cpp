#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

// GPT-2 multiplies from the other side: its weights are transposed.
void transposed_linear(ParameterList& list, const std::string& name, int64_t in, int64_t out) {
  list.add(name + ".weight", {in, out});
  list.add(name + ".bias", {out});
}

void add_gpt2_layer(ParameterList& list, const std::string& layer, int64_t width, int64_t inner) {
  list.layer_norm(layer + "ln_1", width);
  transposed_linear(list, layer + "attn.c_attn", width, 3 * width);
  transposed_linear(list, layer + "attn.c_proj", width, width);
  list.layer_norm(layer + "ln_2", width);
  transposed_linear(list, layer + "mlp.c_fc", width, inner);
  transposed_linear(list, layer + "mlp.c_proj", inner, width);
}

}  // namespace

ModelLayout gpt2_layout(const model_config::Gpt2Sizes& sizes, Head head, int64_t labels) {
  const int64_t width = sizes.width;
  ModelLayout model{.blocks = {plain_blocks(sizes)}};
  const std::string prefix = head == Head::kNone ? "" : "transformer.";
  ParameterList list;
  list.embedding(prefix + "wte", sizes.vocabulary, width);
  list.embedding(prefix + "wpe", sizes.positions, width);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    add_gpt2_layer(list, prefix + "h." + std::to_string(i) + ".", width, sizes.inner_width);
  }
  list.layer_norm(prefix + "ln_f", width);
  if (head == Head::kCausalLm) {
    if (!sizes.tied_words) list.add("lm_head.weight", {sizes.vocabulary, width});
    model.logits_per_token = sizes.vocabulary;
  } else if (head == Head::kSequenceClassification) {
    list.linear("score", width, labels, false);
  } else {
    add_token_head(list, head, width, labels);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
