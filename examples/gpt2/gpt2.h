// GPT-2 as an ordinary module, on the fused operations of the library.
#pragma once

#include <accelerate/ops.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace gpt2 {

struct Config {
  int64_t vocabulary = 50304;  // 50,257 rounded up to a multiple of 128: a third faster
  int64_t positions = 1024;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
};

// "124M", "350M", "774M" or "1558M".
inline Config config_named(const std::string& name) {
  if (name == "124M") return {};
  if (name == "350M") return {.layers = 24, .heads = 16, .width = 1024};
  if (name == "774M") return {.layers = 36, .heads = 20, .width = 1280};
  if (name == "1558M") return {.layers = 48, .heads = 25, .width = 1600};
  throw std::invalid_argument("no GPT-2 has the size '" + name + "'");
}

namespace ops = accelerate::ops;

// The parameters of one layer, by the names of the published checkpoints.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Config& config)
      : ln_1(register_module("ln_1", norm(config.width))),
        c_attn(register_module("c_attn", torch::nn::Linear(config.width, 3 * config.width))),
        c_proj(register_module("c_proj", torch::nn::Linear(config.width, config.width))),
        ln_2(register_module("ln_2", norm(config.width))),
        c_fc(register_module("c_fc", torch::nn::Linear(config.width, 4 * config.width))),
        c_proj_2(register_module("c_proj_2", torch::nn::Linear(4 * config.width, config.width))) {}

  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  torch::nn::LayerNorm ln_1;
  torch::nn::Linear c_attn, c_proj;
  torch::nn::LayerNorm ln_2;
  torch::nn::Linear c_fc, c_proj_2;
};
TORCH_MODULE(Block);

struct Gpt2Impl : torch::nn::Module {
  explicit Gpt2Impl(const Config& own)
      : config(own),
        wte(register_module("wte", torch::nn::Embedding(own.vocabulary, own.width))),
        wpe(register_module("wpe", torch::nn::Embedding(own.positions, own.width))),
        ln_f(register_module("ln_f", BlockImpl::norm(own.width))) {
    for (int64_t i = 0; i < own.layers; ++i) {
      blocks.push_back(register_module("h_" + std::to_string(i), Block(own)));
    }
    initialise();
  }

  // The mean loss of predicting `targets` from `tokens`, both [batch, positions].
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    return ops::linear_cross_entropy(features(tokens), wte->weight, targets);
  }

  // The scores of the token after the last position: [batch, vocabulary].
  at::Tensor next_scores(const at::Tensor& tokens) {
    return features(tokens).select(1, -1).matmul(wte->weight.t()).to(at::kFloat);
  }

  // Each branch leaves its last bias to the norm that follows, which adds it on the way.
  at::Tensor features(const at::Tensor& tokens) {
    at::Tensor sum = ops::embedding(tokens, wte->weight, wpe->weight);
    at::Tensor x = ops::layer_norm(sum, blocks[0]->ln_1->weight, blocks[0]->ln_1->bias);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      x = ops::self_attention(x, block->c_attn->weight, block->c_attn->bias, config.heads);
      x = ops::linear(x, block->c_proj->weight);
      std::tie(sum, x) = ops::residual_layer_norm(sum, x, block->ln_2->weight, block->ln_2->bias,
                                                  1e-5, block->c_proj->bias);
      x = ops::gelu(ops::linear(x, block->c_fc->weight), block->c_fc->bias);
      x = ops::linear(x, block->c_proj_2->weight);
      const torch::nn::LayerNorm& next = i + 1 < blocks.size() ? blocks[i + 1]->ln_1 : ln_f;
      std::tie(sum, x) =
          ops::residual_layer_norm(sum, x, next->weight, next->bias, 1e-5, block->c_proj_2->bias);
    }
    return x;
  }

  // As GPT-2 was: normal with 0.02, less for what is added to the residual stream.
  void initialise() {
    const torch::NoGradGuard no_grad;
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
    torch::nn::init::normal_(wte->weight, 0.0, 0.02);
    torch::nn::init::normal_(wpe->weight, 0.0, 0.02);
    for (const Block& block : blocks) {
      for (const auto& linear : {block->c_attn, block->c_proj, block->c_fc, block->c_proj_2}) {
        torch::nn::init::normal_(linear->weight, 0.0, 0.02);
        torch::nn::init::zeros_(linear->bias);
      }
      torch::nn::init::normal_(block->c_proj->weight, 0.0, residual);
      torch::nn::init::normal_(block->c_proj_2->weight, 0.0, residual);
    }
  }

  Config config;
  torch::nn::Embedding wte, wpe;
  torch::nn::LayerNorm ln_f;
  std::vector<Block> blocks;
};
TORCH_MODULE(Gpt2);

// AdamW as language models have it: weight decay for matrices alone.
inline torch::optim::AdamW adamw_for(const torch::nn::Module& model, double lr,
                                     double weight_decay) {
  using torch::optim::AdamWOptions;
  using torch::optim::OptimizerParamGroup;
  std::vector<at::Tensor> matrices, vectors;
  for (const at::Tensor& parameter : model.parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const auto decaying = AdamWOptions(lr).betas({0.9, 0.95}).weight_decay(weight_decay);
  const auto plain = AdamWOptions(lr).betas({0.9, 0.95}).weight_decay(0);
  return torch::optim::AdamW(
      {OptimizerParamGroup(matrices, std::make_unique<AdamWOptions>(decaying)),
       OptimizerParamGroup(vectors, std::make_unique<AdamWOptions>(plain))},
      decaying);
}

}  // namespace gpt2
