#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

struct Stack {
  std::string name;  // "encoder"
  BlockDimensions block;
  uint64_t buckets = 0;  // of relative positions
};

void add_attention(ParameterList& list, const std::string& layer, const std::string& kind,
                   const BlockDimensions& block) {
  for (const char* name : {"q", "k", "v"}) {
    list.linear(layer + kind + "." + name, block.hidden, block.query_width, false);
  }
  list.linear(layer + kind + ".o", block.query_width, block.hidden, false);
  list.rms_norm(layer + "layer_norm", block.hidden);
}

void add_feed_forward(ParameterList& list, const std::string& layer, const BlockDimensions& block) {
  const std::string dense = layer + "DenseReluDense.";
  if (block.is_gated) {
    list.linear(dense + "wi_0", block.hidden, block.inner, false);
    list.linear(dense + "wi_1", block.hidden, block.inner, false);
  } else {
    list.linear(dense + "wi", block.hidden, block.inner, false);
  }
  list.linear(dense + "wo", block.inner, block.hidden, false);
  list.rms_norm(layer + "layer_norm", block.hidden);
}

void add_stack(ParameterList& list, const Stack& stack) {
  const BlockDimensions& block = stack.block;
  for (uint64_t i = 0; i < block.layers; ++i) {
    const std::string layers = stack.name + ".block." + std::to_string(i) + ".layer.";
    add_attention(list, layers + "0.", "SelfAttention", block);
    if (i == 0) {  // the others use its positions
      list.embedding(layers + "0.SelfAttention.relative_attention_bias", stack.buckets,
                     block.heads);
    }
    if (block.attends_encoder) add_attention(list, layers + "1.", "EncDecAttention", block);
    add_feed_forward(list, layers + (block.attends_encoder ? "2." : "1."), block);
  }
  list.rms_norm(stack.name + ".final_layer_norm", block.hidden);
}

BlockDimensions encoder_blocks(const ConfigValues& config) {
  const uint64_t heads = config.size("num_heads", 8);
  const uint64_t width = heads * config.size("d_kv", 64);
  return {.layers = config.layers("num_layers", 6),
          .hidden = config.size("d_model", 512),
          .heads = heads,
          .query_width = width,
          .key_width = width,
          .inner = config.size("d_ff", 2048),
          .is_gated = config.text("feed_forward_proj", "relu").starts_with("gated-")};
}

}  // namespace

// Input and output embeddings are one tensor always, whatever tie_word_embeddings says: with T5 it
// tells how the output of the decoder is scaled.
ModelLayout t5_architecture(const ConfigValues& config) {
  const BlockDimensions encoder = encoder_blocks(config);
  BlockDimensions decoder = encoder;
  decoder.layers = config.layers("num_decoder_layers", encoder.layers);
  decoder.attends_encoder = true;
  const uint64_t vocabulary = config.size("vocab_size", 32128);
  const uint64_t buckets = config.size("relative_attention_num_buckets", 32);

  ModelLayout model{
      .name = known_class(config, {"T5Model", "T5EncoderModel", "T5ForConditionalGeneration"}),
      .blocks = {encoder}};
  ParameterList list;
  list.embedding("shared", vocabulary, encoder.hidden);
  add_stack(list, {.name = "encoder", .block = encoder, .buckets = buckets});
  if (model.name != "T5EncoderModel") {
    add_stack(list, {.name = "decoder", .block = decoder, .buckets = buckets});
    model.blocks.push_back(decoder);
  }
  if (model.name == "T5ForConditionalGeneration") model.logits_per_token = vocabulary;
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
