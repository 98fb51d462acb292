// The part of BERT between embeddings and heads, which RoBERTa shares.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "accelerate/transformers/config.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

// The settings of config.json, where one is missing the value that Hugging Face's classes have.
struct BertSettings {
  explicit BertSettings(const ModelConfig& config);

  int64_t vocabulary, width, layers, heads, inner_width, positions, token_types;
  double dropout, attention_dropout, classifier_dropout, eps;
  bool causal;
  Activation act;
};

// A matrix, dropout, and the norm of its sum with what went past it.
class DenseNormImpl : public torch::nn::Module {
 public:
  DenseNormImpl(int64_t in, const BertSettings& settings);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& past);

 private:
  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};
TORCH_MODULE(DenseNorm);

class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const BertSettings& settings);
  // `mask` as AttendOptions has it.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  int64_t heads_;
  double attention_dropout_;
  Activation act_;
  Linear query_, key_, value_;
  DenseNorm attention_output_;
  Linear intermediate_;
  DenseNorm output_;
};
TORCH_MODULE(BertLayer);

class BertEncoderImpl : public torch::nn::Module {
 public:
  explicit BertEncoderImpl(const BertSettings& settings);
  // Adds what goes into each layer, and what comes out of the last, to `hidden_states`, unless that
  // is null. `padding` [batch, positions] of 0 and 1, or undefined.
  at::Tensor forward(at::Tensor x, const at::Tensor& padding,
                     std::vector<at::Tensor>* hidden_states);

 private:
  bool causal_;
  std::vector<BertLayer> layers_{};
};
TORCH_MODULE(BertEncoder);

}  // namespace accelerate::transformers
