// What models that predict the next token have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/transformers/model.h"
#include "transformers/models/attention.h"
#include "transformers/models/layers.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {

// How `queries` new positions that follow `past` others look at all of them. `mask` covers all of
// them and may be undefined. On the CPU a mask without padding counts as none; on a GPU its values
// are not read, so leave it out where nothing is padded: attention is faster then.
AttendOptions causal_attention(int64_t queries, int64_t past, const at::Tensor& mask,
                               c10::Device device);

// Of models whose logits are a product of features with a matrix: who wants only the best token
// need not make them all.
class FactoredLogits {
 public:
  virtual ~FactoredLogits() = default;
  // [vocabulary, width].
  virtual const at::Tensor& output_matrix() const = 0;
  // The features of the last position of each text, [batch, width].
  virtual at::Tensor last_features(const ModelInputs& inputs, const ForwardOptions& options) = 0;
  virtual int64_t most_positions() const { return kNoTable; }
};

// The matrix that makes scores of features: that of the embedding, or one of its own.
class LanguageHead {
 public:
  // Where `tied`, uses the matrix of `embedding`, else registers "lm_head" in `owner`.
  LanguageHead(torch::nn::Module& owner, const Embedding& embedding, bool tied);

  const at::Tensor& weight() const;
  // See PretrainedModel; `name` is the registered name of the embedding's matrix.
  std::vector<std::pair<std::string, std::string>> tied_weights(const std::string& name) const;
  bool untie(torch::nn::Module& owner, const std::string& name);

  // Of its own: {"lm_head.weight"} or none.
  std::vector<std::string> token_parameters() const;

  // Puts logits into `output`, and the loss if there are labels; `labels` are those of the
  // positions themselves. Where the options ask for the loss alone there are no logits.
  void score(ModelOutput& output, at::Tensor features, const at::Tensor& labels,
             const ForwardOptions& options) const;
  // The same for the last_hidden_state of `body`, where each position predicts the next one.
  ModelOutput next_token(ModelOutput body, const ModelInputs& inputs,
                         const ForwardOptions& options) const;

 private:
  Embedding embedding_;
  Linear own_{nullptr};
};

// Logits of `score` and their loss at the last token of each text that is not padding, found as
// Hugging Face's models do: by pad_token_id.
ModelOutput classify_last_token(ModelOutput body, const Linear& score, ModelConfig& config,
                                const ModelInputs& inputs);

// Logits of `score` and their loss at each token.
ModelOutput classify_tokens(ModelOutput body, const Linear& score, const ModelInputs& inputs);

// The dropout before the head for tokens: classifier_dropout, else hidden_dropout, else 0.1.
double token_head_dropout(const ModelConfig& config);

}  // namespace accelerate::transformers
