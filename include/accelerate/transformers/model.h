// What all transformer models have in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/nested.h"
#include "accelerate/transformers/config.h"
#include "accelerate/transformers/key_value_cache.h"

namespace accelerate::transformers {

// The inputs of a model: a batch of tokenized texts. All but input_ids may be left out.
struct ModelInputs {
  at::Tensor input_ids{};       // [batch, positions] of int64
  at::Tensor attention_mask{};  // the same shape; 0: padding, on either side
  at::Tensor token_type_ids{};
  at::Tensor position_ids{};
  at::Tensor labels{};  // makes the model compute a loss; -100 is ignored
  // Of models with an encoder and a decoder; made of the labels if those are given.
  at::Tensor decoder_input_ids{};
  at::Tensor decoder_attention_mask{};
  ACCELERATE_FIELDS(input_ids, attention_mask, token_type_ids, position_ids, labels,
                    decoder_input_ids, decoder_attention_mask)
};

// The outputs of a model; what its kind does not have is undefined.
struct ModelOutput {
  at::Tensor loss{};               // a scalar, where labels were given
  at::Tensor logits{};             // of models with a head
  at::Tensor last_hidden_state{};  // of models without one
  at::Tensor pooler_output{};
  std::vector<at::Tensor> hidden_states{};  // of each layer, where that was asked for
  at::Tensor encoder_last_hidden_state{};
  ACCELERATE_FIELDS(loss, logits, last_hidden_state, pooler_output, hidden_states,
                    encoder_last_hidden_state)
};

struct ForwardOptions {
  bool output_hidden_states = false;
  // The inputs continue what is in it. attention_mask then covers all positions, old and new.
  KeyValueCache* cache = nullptr;
  // Logits of only that many last positions; 0: of all.
  int64_t logits_to_keep = 0;
  // Language models with labels: leave the logits undefined and take the loss by a fused operation
  // that never stores all of them.
  bool loss_only = false;
  // The encoder's output, if already known: input_ids are then ignored.
  at::Tensor encoder_last_hidden_state{};
};

struct ResizeOptions {
  // The number of tokens is rounded up to a multiple of it; 0: it is not.
  int64_t pad_to_multiple_of = 0;
  // New rows are the mean of the old ones, each a little off it (by a billionth of their
  // covariance): what the model says of the old tokens changes the least. Biases of a head that is
  // tied, and all where this is false, get what initialise() gives.
  bool mean_resizing = true;
};

// A model whose parameters have the names and shapes of Hugging Face's checkpoints. Parameters that
// are tied are one parameter, registered once, under the name that checkpoints use.
//
// Making one allocates parameters without values: from_pretrained() and from_config() fill them.
class ACCELERATE_EXPORT PretrainedModel : public torch::nn::Module {
 public:
  explicit PretrainedModel(ModelConfig config) : config_(std::move(config)) {}

  virtual ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) = 0;

  // "BertForSequenceClassification".
  virtual std::string architecture() const = 0;
  // The name under which models with a head hold the part that AutoModel makes: "bert".
  virtual std::string base_model_prefix() const = 0;
  // Names that files may have for a tied parameter: {that name, the registered one}.
  virtual std::vector<std::pair<std::string, std::string>> tied_weights() const { return {}; }
  // Gives the first name of such a pair a parameter of its own, under that name and without values:
  // for files that have both, and different. False where that cannot be.
  virtual bool untie(const std::string& name);
  // Modules whose parameters stay in float32 where the model is loaded in float16.
  virtual std::vector<std::string> keep_in_fp32_modules() const { return {}; }
  // Fills one parameter with what training from scratch begins with. By default matrices are normal
  // with initializer_range, one-dimensional weights one, biases zero.
  virtual void initialise(const std::string& name, at::Tensor parameter) const;

  // The parameters that have a row for each token, by name; of tied ones the registered name.
  virtual std::vector<std::string> token_parameters() const { return {}; }
  // Gives the model rows for `count` tokens: new ones at the end, or fewer. Sets vocab_size and
  // returns what it is then. Parameters stay the objects that they are, without their gradients;
  // the optimizer's state for them no longer fits, so call this before optimizers are made
  // and before prepare(), which gives the new rows of rank 0 to all ranks. Throws UsageError for a
  // model without token_parameters() and invalid numbers.
  int64_t resize_token_embeddings(int64_t count, const ResizeOptions& options = {});

  // Whether it predicts the next token, as generate() needs.
  virtual bool can_generate() const { return false; }
  virtual bool is_encoder_decoder() const { return false; }
  // Runs the encoder alone; UsageError where there is none.
  virtual at::Tensor encode(const ModelInputs& inputs);

  const ModelConfig& config() const { return config_; }
  ModelConfig& config() { return config_; }
  // generation_config.json, or the generation settings in config.json.
  const ModelConfig& generation_config() const { return generation_config_; }
  ModelConfig& generation_config() { return generation_config_; }

 private:
  ModelConfig config_;
  ModelConfig generation_config_{};
};

}  // namespace accelerate::transformers
