// The encoder and the decoder of T5.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <string>
#include <vector>

#include "accelerate/transformers/key_value_cache.h"
#include "accelerate/transformers/model.h"
#include "model_config/model_sizes.h"
#include "transformers/models/attention.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

struct T5Options : model_config::T5Sizes {
  double dropout = 0.0, eps = 0.0;
  std::string activation{};
  std::string file{};  // for messages

  static T5Options from_config(const ModelConfig& config);
};

// The bucket of each relative position (key minus query), [queries, keys] of int64: near ones have
// one each, far ones share, more the farther they are. `first` is the position of the first query.
at::Tensor relative_position_buckets(int64_t first, int64_t queries, int64_t keys,
                                     bool bidirectional, int64_t buckets, int64_t most_distance,
                                     c10::Device device);

struct T5AttentionImpl : torch::nn::Module {
  T5AttentionImpl(const T5Options& options, bool with_bias);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& mask, double dropout) const;
  at::Tensor keys(const at::Tensor& x) const { return split_heads(k->forward(x), heads); }
  at::Tensor values(const at::Tensor& x) const { return split_heads(v->forward(x), heads); }

  const int64_t heads;
  Linear q, k, v, o;
  Embedding relative_attention_bias{nullptr};
};
TORCH_MODULE(T5Attention);

struct T5DenseImpl : torch::nn::Module {
  explicit T5DenseImpl(const T5Options& options);
  at::Tensor forward(const at::Tensor& x) const;

  Linear wi{nullptr}, wi_0{nullptr}, wi_1{nullptr}, wo{nullptr};
  const Activation act;
  const double dropped;
};
TORCH_MODULE(T5Dense);

// A norm and what follows it, with the name that checkpoints have for that.
struct T5SublayerImpl : torch::nn::Module {
  explicit T5SublayerImpl(const T5Options& options);

  RmsNorm layer_norm;
  T5Attention attention{nullptr};  // "SelfAttention" or "EncDecAttention"
  T5Dense dense{nullptr};          // "DenseReluDense"
};
TORCH_MODULE(T5Sublayer);

struct T5BlockImpl : torch::nn::Module {
  T5BlockImpl(const T5Options& options, bool decoder, bool with_bias);

  torch::nn::ModuleList layer;
  T5Sublayer self{nullptr}, cross{nullptr}, feed_forward{nullptr};  // those of `layer`
};
TORCH_MODULE(T5Block);

struct T5StackImpl : torch::nn::Module {
  T5StackImpl(const T5Options& options, bool decoder);

  struct Call {
    at::Tensor mask{};     // of the positions of `x`, old and new
    at::Tensor encoded{};  // decoder: what the encoder said
    at::Tensor encoded_mask{};
    KeyValueCache* cache = nullptr;
    std::vector<at::Tensor>* hidden_states = nullptr;
  };
  // `x` are embedded tokens.
  at::Tensor forward(at::Tensor x, const Call& call) const;

 private:
  at::Tensor position_bias(int64_t past, const at::Tensor& x, const at::Tensor& mask) const;
  at::Tensor cross_attend(const T5Attention& attention, const at::Tensor& x, const Call& call,
                          const at::Tensor& mask, size_t layer) const;

  const bool decoder_;
  const double dropout_;
  const int64_t buckets_, most_distance_;
  torch::nn::ModuleList block_;
  std::vector<T5Block> blocks_{};  // those of block_
  RmsNorm final_layer_norm_;
};
TORCH_MODULE(T5Stack);

}  // namespace accelerate::transformers
