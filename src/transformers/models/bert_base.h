// BERT and RoBERTa without a head.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "accelerate/transformers/model.h"
#include "transformers/models/bert_encoder.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

// How the two differ.
enum class BertPositions {
  kFromZero,      // BERT
  kAfterPadding,  // RoBERTa: from pad_token_id + 1, padding does not count and has that number
};

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  BertEmbeddingsImpl(const ModelConfig& config, const BertSettings& settings, BertPositions kind);
  at::Tensor forward(const ModelInputs& inputs);
  const at::Tensor& words() const { return words_->weight; }
  // -1: there is none.
  int64_t padding() const { return padding_; }

 private:
  at::Tensor position_rows(const ModelInputs& inputs);
  at::Tensor after_padding(const at::Tensor& ids) const;

  BertPositions kind_;
  int64_t padding_;
  double dropout_;
  Embedding words_, positions_, token_types_;
  LayerNorm norm_;
};
TORCH_MODULE(BertEmbeddings);

class BertPoolerImpl : public torch::nn::Module {
 public:
  explicit BertPoolerImpl(int64_t width);
  // Of the first position, [batch, width].
  at::Tensor forward(const at::Tensor& x);

 private:
  Linear dense_;
};
TORCH_MODULE(BertPooler);

class BertBase : public PretrainedModel {
 public:
  BertBase(const ModelConfig& config, BertPositions kind, bool with_pooler);

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override;
  // [batch, width] of the first position: of the last hidden state, or what the pooler makes of it.
  // Adds to the output what options ask for; only what is needed for that is computed.
  at::Tensor forward_first(const ModelInputs& inputs, const ForwardOptions& options,
                           ModelOutput& output);
  void initialise(const std::string& name, at::Tensor parameter) const override;
  std::vector<std::string> token_parameters() const override {
    return {"embeddings.word_embeddings.weight"};
  }

  const BertSettings& settings() const { return settings_; }
  double classifier_dropout() const { return settings_.classifier_dropout; }
  int64_t width() const { return settings_.width; }
  const at::Tensor& words() const { return embeddings_->words(); }

 private:
  void check(const ModelInputs& inputs) const;
  EncoderStack::Options encoder_options(const ModelInputs& inputs) const;

  BertSettings settings_;
  BertPositions kind_;
  BertEmbeddings embeddings_{nullptr};
  BertEncoder encoder_{nullptr};
  BertPooler pooler_{nullptr};
};

}  // namespace accelerate::transformers
