// The sizes that decide about the parameters of each known type of model, with the values that
// Hugging Face's classes have where a file does not name one.
#pragma once

#include <cstdint>

#include "model_config/document.h"

namespace accelerate::model_config {

// Each is at least 1 and below 2^31. The functions throw DataError for values that are not, and for
// those that do not go together.

struct BertSizes {
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 0, inner_width = 0;
  int64_t positions = 0, token_types = 0;
  bool tied_words = true;  // the output of a language model multiplies by the embeddings
};
BertSizes bert_sizes(const Document& config);
BertSizes roberta_sizes(const Document& config);

struct DistilBertSizes {
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 0, inner_width = 0;
  int64_t positions = 0;
  bool tied_words = true;
};
DistilBertSizes distilbert_sizes(const Document& config);

struct Gpt2Sizes {
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 0, inner_width = 0;
  int64_t positions = 0;
  bool tied_words = true;
};
Gpt2Sizes gpt2_sizes(const Document& config);

struct LlamaSizes {
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 0, inner_width = 0;
  int64_t key_heads = 0, head_width = 0;
  bool attention_bias = false, mlp_bias = false;
  bool tied_words = false;
};
LlamaSizes llama_sizes(const Document& config);

// Input and output embeddings are one tensor always, whatever tie_word_embeddings says: with T5 it
// tells how the output of the decoder is scaled.
struct T5Sizes {
  int64_t vocabulary = 0, width = 0, encoder_layers = 0, decoder_layers = 0, heads = 0;
  int64_t head_width = 0, inner_width = 0;
  int64_t buckets = 0;        // of relative positions
  int64_t most_distance = 0;  // beyond which all share the last of them
  bool is_gated = false;      // two projections into the feed-forward layer, multiplied
};
T5Sizes t5_sizes(const Document& config);

}  // namespace accelerate::model_config
