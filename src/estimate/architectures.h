// Models whose parameters follow from their config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimate/model_config.h"
#include "estimate/parameter_list.h"

namespace accelerate::estimate {

// A run of equal blocks, as far as memory of activations depends on it.
struct BlockDimensions {
  uint64_t layers = 0;
  uint64_t hidden = 0;       // width of what goes from block to block
  uint64_t heads = 0;        // of queries
  uint64_t query_width = 0;  // heads times their size
  uint64_t key_width = 0;    // the same of keys, and of values
  uint64_t inner = 0;        // width of the feed-forward layer
  bool is_gated = false;     // two projections into that width, multiplied
  bool has_dropout = true;
  bool attends_encoder = false;  // a second attention, over the output of the encoder
};

struct ModelLayout {
  std::string name{};  // "BertForSequenceClassification"
  std::vector<Parameter> parameters{};
  std::vector<BlockDimensions> blocks{};
  // Numbers that come out for each token: the vocabulary of a language model, else 0.
  uint64_t logits_per_token = 0;
};

// The model that `config` describes. Throws ConfigError that lists what is known if its model_type
// or its class is not.
ModelLayout architecture_of(const ConfigValues& config);

// One file each. Called by architecture_of() with a config of their model_type.
ModelLayout bert_architecture(const ConfigValues& config);
ModelLayout distilbert_architecture(const ConfigValues& config);
ModelLayout gpt2_architecture(const ConfigValues& config);
ModelLayout llama_architecture(const ConfigValues& config);
ModelLayout roberta_architecture(const ConfigValues& config);
ModelLayout t5_architecture(const ConfigValues& config);

// The class that the config names, which must be one of `known`; the first of them if it names
// none.
std::string known_class(const ConfigValues& config, const std::vector<std::string>& known);

// BERT's encoder below `prefix`, which RoBERTa shares: embeddings, layers and, if asked for, the
// pooler.
void add_bert_encoder(ParameterList& list, const std::string& prefix, const ConfigValues& config,
                      uint64_t vocabulary, bool has_pooler);
BlockDimensions bert_blocks(const ConfigValues& config);

}  // namespace accelerate::estimate
