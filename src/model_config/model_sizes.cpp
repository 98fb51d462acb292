#include "model_config/model_sizes.h"

#include <string>

#include "accelerate/errors.h"

namespace accelerate::model_config {
namespace {

// One of `heads` parts of `width`.
void check_heads(const Document& config, int64_t width, int64_t heads) {
  if (width % heads == 0) return;
  throw DataError({.what = config.name + ": a hidden size of " + std::to_string(width) +
                           " cannot be divided among " + std::to_string(heads) +
                           " attention heads" +
                           config.changed_settings({"hidden_size", "num_attention_heads"})});
}

BertSizes bert_sizes_of(const Document& config, int64_t vocabulary) {
  const BertSizes sizes{.vocabulary = config.size("vocab_size", vocabulary),
                        .width = config.size("hidden_size", 768),
                        .layers = config.size("num_hidden_layers", 12),
                        .heads = config.size("num_attention_heads", 12),
                        .inner_width = config.size("intermediate_size", 3072),
                        .positions = config.size("max_position_embeddings", 512),
                        .token_types = config.size("type_vocab_size", 2),
                        .tied_words = config.flag("tie_word_embeddings", true)};
  check_heads(config, sizes.width, sizes.heads);
  return sizes;
}

int64_t llama_head_width(const Document& config, int64_t width, int64_t heads) {
  if (config.has("head_dim")) return config.size("head_dim");
  if (width % heads == 0) return width / heads;
  throw DataError({.what = "'hidden_size' in " + config.name + " is " + std::to_string(width) +
                           ", which " + std::to_string(heads) + " heads do not divide" +
                           config.changed_settings({"hidden_size", "num_attention_heads"})});
}

}  // namespace

BertSizes bert_sizes(const Document& config) { return bert_sizes_of(config, 30522); }
BertSizes roberta_sizes(const Document& config) { return bert_sizes_of(config, 50265); }

DistilBertSizes distilbert_sizes(const Document& config) {
  const DistilBertSizes sizes{.vocabulary = config.size("vocab_size", 30522),
                              .width = config.size("dim", 768),
                              .layers = config.size("n_layers", 6),
                              .heads = config.size("n_heads", 12),
                              .inner_width = config.size("hidden_dim", 3072),
                              .positions = config.size("max_position_embeddings", 512),
                              .tied_words = config.flag("tie_word_embeddings", true)};
  check_heads(config, sizes.width, sizes.heads);
  return sizes;
}

Gpt2Sizes gpt2_sizes(const Document& config) {
  const int64_t width = config.size("n_embd", 768);
  const Gpt2Sizes sizes{.vocabulary = config.size("vocab_size", 50257),
                        .width = width,
                        .layers = config.size("n_layer", 12),
                        .heads = config.size("n_head", 12),
                        .inner_width = config.size("n_inner", 4 * width),
                        .positions = config.size("n_positions", 1024),
                        .tied_words = config.flag("tie_word_embeddings", true)};
  if (width % sizes.heads == 0) return sizes;
  throw DataError({.what = "'n_embd' in " + config.name + " is " + std::to_string(width) +
                           ", which " + std::to_string(sizes.heads) + " heads do not divide" +
                           config.changed_settings({"n_embd", "n_head"})});
}

LlamaSizes llama_sizes(const Document& config) {
  const int64_t width = config.size("hidden_size", 4096);
  const int64_t heads = config.size("num_attention_heads", 32);
  const LlamaSizes sizes{.vocabulary = config.size("vocab_size", 32000),
                         .width = width,
                         .layers = config.size("num_hidden_layers", 32),
                         .heads = heads,
                         .inner_width = config.size("intermediate_size", 11008),
                         .key_heads = config.size("num_key_value_heads", heads),
                         .head_width = llama_head_width(config, width, heads),
                         .attention_bias = config.flag("attention_bias", false),
                         .mlp_bias = config.flag("mlp_bias", false),
                         .tied_words = config.flag("tie_word_embeddings", false)};
  if (heads % sizes.key_heads == 0) return sizes;
  throw DataError(
      {.what = "'num_key_value_heads' in " + config.name + " is " +
               std::to_string(sizes.key_heads) + ", which does not divide the " +
               std::to_string(heads) + " attention heads" +
               config.changed_settings({"num_key_value_heads", "num_attention_heads"})});
}

T5Sizes t5_sizes(const Document& config) {
  const int64_t layers = config.size("num_layers", 6);
  const T5Sizes sizes{.vocabulary = config.size("vocab_size", 32128),
                      .width = config.size("d_model", 512),
                      .encoder_layers = layers,
                      .decoder_layers = config.size("num_decoder_layers", layers),
                      .heads = config.size("num_heads", 8),
                      .head_width = config.size("d_kv", 64),
                      .inner_width = config.size("d_ff", 2048),
                      .buckets = config.size("relative_attention_num_buckets", 32),
                      .most_distance = config.size("relative_attention_max_distance", 128),
                      .is_gated = config.text("feed_forward_proj", "relu").starts_with("gated-")};
  // An encoder's buckets are halved twice.
  if (sizes.buckets >= 4 && sizes.most_distance > sizes.buckets / 2) return sizes;
  throw DataError({.what = "'relative_attention_num_buckets' in " + config.name +
                           " must be at least 4, and half of it below "
                           "'relative_attention_max_distance'" +
                           config.changed_settings({"relative_attention_num_buckets",
                                                    "relative_attention_max_distance"})});
}

}  // namespace accelerate::model_config
