// The part of BERT between embeddings and heads, which RoBERTa shares.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "accelerate/transformers/config.h"
#include "model_config/model_sizes.h"
#include "transformers/models/encoder_block.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

// The settings of config.json, where one is missing the value that Hugging Face's classes have.
struct BertSettings : model_config::BertSizes {
  BertSettings(const ModelConfig& config, const model_config::BertSizes& sizes);

  double dropout, attention_dropout, classifier_dropout, eps;
  bool causal;
  Activation act;
};

class BertEncoderImpl : public torch::nn::Module {
 public:
  explicit BertEncoderImpl(const BertSettings& settings);
  const EncoderStack& layers() const { return layers_; }

 private:
  EncoderStack layers_{};
};
TORCH_MODULE(BertEncoder);

}  // namespace accelerate::transformers
