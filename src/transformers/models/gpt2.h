// GPT-2 without a head, on the fused operations of the library: what they do not have a kernel for
// they do by operators of libtorch.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "accelerate/ops.h"
#include "accelerate/transformers/model.h"
#include "model_config/model_sizes.h"
#include "transformers/models/attention.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

struct Gpt2AttentionImpl : torch::nn::Module {
  Gpt2AttentionImpl(int64_t width, double scale);

  Conv1d c_attn, c_proj;
  const double scale;
};
TORCH_MODULE(Gpt2Attention);

struct Gpt2MlpImpl : torch::nn::Module {
  Gpt2MlpImpl(int64_t width, int64_t inner);

  Conv1d c_fc, c_proj;
};
TORCH_MODULE(Gpt2Mlp);

struct Gpt2BlockImpl : torch::nn::Module {
  Gpt2BlockImpl(const ModelConfig& config, const model_config::Gpt2Sizes& sizes, int64_t layer);

  LayerNorm ln_1;
  Gpt2Attention attn;
  LayerNorm ln_2;
  Gpt2Mlp mlp;
};
TORCH_MODULE(Gpt2Block);

class Gpt2Model : public PretrainedModel {
 public:
  explicit Gpt2Model(const ModelConfig& config);

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override;
  std::string architecture() const override { return "GPT2Model"; }
  std::string base_model_prefix() const override { return "transformer"; }
  void initialise(const std::string& name, at::Tensor parameter) const override;
  std::vector<std::string> token_parameters() const override { return {"wte.weight"}; }

  const Embedding& embedding() const { return wte_; }
  int64_t positions() const { return wpe_->weight.size(0); }
  int64_t width() const { return wte_->weight.size(1); }

 private:
  Gpt2Model(const ModelConfig& config, const model_config::Gpt2Sizes& sizes);

  at::Tensor embed(const ModelInputs& inputs, int64_t past) const;
  at::Tensor attend_to(const Gpt2Attention& attention, const at::Tensor& x,
                       const AttendOptions& attend_options, KeyValueCache* cache,
                       size_t layer) const;
  at::Tensor activate(const Gpt2Mlp& mlp, const at::Tensor& x) const;
  // {sum + branch + bias, its norm}, with dropout on the way.
  std::tuple<at::Tensor, at::Tensor> add_and_norm(const at::Tensor& sum, const at::Tensor& branch,
                                                  const at::Tensor& bias,
                                                  const LayerNorm& norm) const;

  const int64_t heads_;
  const double embedding_dropout_, attention_dropout_, residual_dropout_;
  const std::string activation_name_;
  const Activation activation_;
  Embedding wte_, wpe_;
  torch::nn::ModuleList h_;
  std::vector<Gpt2Block> blocks_{};  // those of h_
  LayerNorm ln_f_;
};

}  // namespace accelerate::transformers
