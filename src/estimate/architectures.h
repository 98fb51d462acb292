// Models whose parameters follow from their config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "estimate/parameter_list.h"
#include "model_config/model_classes.h"
#include "model_config/model_sizes.h"

namespace accelerate::estimate {

using model_config::Head;

// A run of equal blocks, as far as memory of activations depends on it.
struct BlockDimensions {
  int64_t layers = 0;
  int64_t hidden = 0;       // width of what goes from block to block
  int64_t heads = 0;        // of queries
  int64_t query_width = 0;  // heads times their size
  int64_t key_width = 0;    // the same of keys, and of values
  int64_t inner = 0;        // width of the feed-forward layer
  bool is_gated = false;    // two projections into that width, multiplied
  bool has_dropout = true;
  bool attends_encoder = false;  // a second attention, over the output of the encoder
};

// Of a model whose heads share its width.
template <class Sizes>
BlockDimensions plain_blocks(const Sizes& sizes) {
  return {.layers = sizes.layers,
          .hidden = sizes.width,
          .heads = sizes.heads,
          .query_width = sizes.width,
          .key_width = sizes.width,
          .inner = sizes.inner_width};
}

struct ModelLayout {
  std::string name{};  // "BertForSequenceClassification"
  std::vector<Parameter> parameters{};
  std::vector<BlockDimensions> blocks{};
  // Numbers that come out for each token: the vocabulary of a language model, else 0.
  int64_t logits_per_token = 0;
};

// The model that a config.json describes: the first class that it names, else the one without a
// head. Throws ConfigError that names the file if it cannot be used, and one that lists what is
// known if its model_type or its class is not.
ModelLayout read_architecture(const std::filesystem::path& config);
// Of its text; `name` stands for the file in messages.
ModelLayout parse_architecture(std::string_view text, const std::string& name);

// The first class that the file names, known or not; "" where it names none or cannot be used.
std::string named_class(const std::filesystem::path& config);

// One file each: the parameters of a model with that head, under the names that checkpoints have
// for them; its blocks and logits. `labels` are the classes of a classifier. A test holds them
// against the modules of src/transformers/models.
ModelLayout bert_layout(const model_config::BertSizes& sizes, Head head, int64_t labels);
ModelLayout distilbert_layout(const model_config::DistilBertSizes& sizes, Head head,
                              int64_t labels);
ModelLayout gpt2_layout(const model_config::Gpt2Sizes& sizes, Head head, int64_t labels);
ModelLayout llama_layout(const model_config::LlamaSizes& sizes, Head head, int64_t labels);
ModelLayout roberta_layout(const model_config::BertSizes& sizes, Head head, int64_t labels);
ModelLayout t5_layout(const model_config::T5Sizes& sizes, Head head, int64_t labels);

// BERT's encoder below `prefix`, which RoBERTa shares: embeddings, layers and, if asked for, the
// pooler.
void add_bert_encoder(ParameterList& list, const std::string& prefix,
                      const model_config::BertSizes& sizes, bool has_pooler);

// The heads that say something of each token, under the names that most types have for them; adds
// nothing for other heads.
void add_token_head(ParameterList& list, Head head, int64_t width, int64_t labels);

}  // namespace accelerate::estimate
