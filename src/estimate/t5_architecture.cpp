#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

using model_config::T5Sizes;

struct Stack {
  std::string name;  // "encoder"
  BlockDimensions block;
  int64_t buckets = 0;  // of relative positions
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
  for (int64_t i = 0; i < block.layers; ++i) {
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

BlockDimensions encoder_blocks(const T5Sizes& sizes) {
  const int64_t width = sizes.heads * sizes.head_width;
  return {.layers = sizes.encoder_layers,
          .hidden = sizes.width,
          .heads = sizes.heads,
          .query_width = width,
          .key_width = width,
          .inner = sizes.inner_width,
          .is_gated = sizes.is_gated};
}

}  // namespace

ModelLayout t5_layout(const T5Sizes& sizes, Head head, int64_t labels) {
  const BlockDimensions encoder = encoder_blocks(sizes);
  BlockDimensions decoder = encoder;
  decoder.layers = sizes.decoder_layers;
  decoder.attends_encoder = true;
  const bool is_classifier =
      head == Head::kSequenceClassification || head == Head::kTokenClassification;
  const std::string prefix = is_classifier ? "transformer." : "";

  ModelLayout model{.blocks = {encoder}};
  ParameterList list;
  list.embedding(prefix + "shared", sizes.vocabulary, sizes.width);
  add_stack(list, {.name = prefix + "encoder", .block = encoder, .buckets = sizes.buckets});
  if (head != Head::kEncoderAlone && head != Head::kTokenClassification) {
    add_stack(list, {.name = prefix + "decoder", .block = decoder, .buckets = sizes.buckets});
    model.blocks.push_back(decoder);
  }
  if (head == Head::kSeq2SeqLm) {
    model.logits_per_token = sizes.vocabulary;
  } else if (head == Head::kSequenceClassification) {
    list.linear("classification_head.dense", sizes.width, sizes.width);
    list.linear("classification_head.out_proj", sizes.width, labels);
  } else if (head == Head::kTokenClassification) {
    list.linear("classifier", sizes.width, labels);
  }
  model.parameters = list.take();
  return model;
}

}  // namespace accelerate::estimate
