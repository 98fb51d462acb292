// The same network on operators of libtorch alone: what the fused one is checked and measured
// against. Parameters are shared with the fused module it is made from.
#pragma once

#include <torch/torch.h>

#include "gpt2.h"

namespace gpt2 {

struct PlainGpt2Impl : torch::nn::Module {
  explicit PlainGpt2Impl(Gpt2 fused) : model(register_module("model", std::move(fused))) {}

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    namespace F = torch::nn::functional;
    const int64_t positions = tokens.size(1);
    at::Tensor x =
        model->wte(tokens) + model->wpe(torch::arange(positions, tokens.options())).unsqueeze(0);
    for (Block block : model->blocks) {
      x = x + attention(block, block->ln_1(x));
      x = x + block->c_proj_2(
                  F::gelu(block->c_fc(block->ln_2(x)), F::GELUFuncOptions().approximate("tanh")));
    }
    const at::Tensor logits = F::linear(model->ln_f(x), model->wte->weight);
    return F::cross_entropy(logits.view({-1, logits.size(2)}).to(at::kFloat), targets.view({-1}));
  }

  at::Tensor attention(Block block, const at::Tensor& x) {
    const int64_t heads = model->config.heads;
    const int64_t width = model->config.width / heads;
    const auto parts = block->c_attn->forward(x)
                           .view({x.size(0), x.size(1), 3, heads, width})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const at::Tensor found = at::scaled_dot_product_attention(parts[0], parts[1], parts[2],
                                                              std::nullopt, 0.0, /*causal=*/true);
    return block->c_proj->forward(found.transpose(1, 2).reshape(x.sizes()));
  }

  Gpt2 model;
};
TORCH_MODULE(PlainGpt2);

}  // namespace gpt2
