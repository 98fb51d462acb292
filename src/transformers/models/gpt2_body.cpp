#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <tuple>

#include "accelerate/errors.h"
#include "transformers/models/config_document.h"
#include "transformers/models/decoding.h"
#include "transformers/models/gpt2.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

using model_config::Gpt2Sizes;

constexpr auto kInputsFirst = ops::WeightLayout::kInputsFirst;

double scale_of(const ModelConfig& config, const Gpt2Sizes& sizes, int64_t layer) {
  double scale = 1.0;
  if (config.flag("scale_attn_weights", true)) {
    scale = 1 / std::sqrt(static_cast<double>(sizes.width / sizes.heads));
  }
  if (config.flag("scale_attn_by_inverse_layer_idx", false)) {
    scale /= static_cast<double>(layer + 1);
  }
  return scale;
}

double gpt2_epsilon(const ModelConfig& config) {
  return config.non_negative("layer_norm_epsilon", 1e-5);
}

at::Tensor product(const at::Tensor& x, const Conv1d& layer) {
  return ops::linear(x, layer->weight, {}, kInputsFirst);
}

}  // namespace

Gpt2AttentionImpl::Gpt2AttentionImpl(int64_t width, double own_scale)
    : c_attn(register_module("c_attn", Conv1d(width, 3 * width))),
      c_proj(register_module("c_proj", Conv1d(width, width))),
      scale(own_scale) {}

Gpt2MlpImpl::Gpt2MlpImpl(int64_t width, int64_t inner)
    : c_fc(register_module("c_fc", Conv1d(width, inner))),
      c_proj(register_module("c_proj", Conv1d(inner, width))) {}

Gpt2BlockImpl::Gpt2BlockImpl(const ModelConfig& config, const Gpt2Sizes& sizes, int64_t layer)
    : ln_1(register_module("ln_1", LayerNorm(sizes.width, gpt2_epsilon(config)))),
      attn(register_module("attn", Gpt2Attention(sizes.width, scale_of(config, sizes, layer)))),
      ln_2(register_module("ln_2", LayerNorm(sizes.width, gpt2_epsilon(config)))),
      mlp(register_module("mlp", Gpt2Mlp(sizes.width, sizes.inner_width))) {}

Gpt2Model::Gpt2Model(const ModelConfig& config)
    : Gpt2Model(config, model_config::gpt2_sizes(document_of(config))) {}

Gpt2Model::Gpt2Model(const ModelConfig& config, const Gpt2Sizes& sizes)
    : PretrainedModel(config),
      heads_(sizes.heads),
      embedding_dropout_(config.probability("embd_pdrop", 0.1)),
      attention_dropout_(config.probability("attn_pdrop", 0.1)),
      residual_dropout_(config.probability("resid_pdrop", 0.1)),
      activation_name_(config.text("activation_function", "gelu_new")),
      activation_(activation(activation_name_, "activation_function",
                             config.source_of("activation_function"))),
      wte_(register_module("wte", Embedding(sizes.vocabulary, sizes.width))),
      wpe_(register_module("wpe", Embedding(sizes.positions, sizes.width))),
      h_(register_module("h", torch::nn::ModuleList())),
      ln_f_(nullptr) {
  if (config.flag("add_cross_attention", false)) {
    throw DataError({.what = "'add_cross_attention' in " + config.source_of("add_cross_attention") +
                             " is true: GPT-2 as the decoder of another model is not supported"});
  }
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    blocks_.emplace_back(config, sizes, layer);
    h_->push_back(blocks_.back());
  }
  ln_f_ = register_module("ln_f", LayerNorm(sizes.width, gpt2_epsilon(config)));
}

void Gpt2Model::initialise(const std::string& name, at::Tensor parameter) const {
  if (!name.ends_with("c_proj.weight")) return PretrainedModel::initialise(name, parameter);
  // Less for what is added to the residual stream: as many times as there are branches.
  const double scale = 1 / std::sqrt(2.0 * static_cast<double>(blocks_.size()));
  const at::NoGradGuard no_gradient;
  parameter.normal_(0.0, config().non_negative("initializer_range", 0.02) * scale);
}

at::Tensor Gpt2Model::embed(const ModelInputs& inputs, int64_t past) const {
  const at::Tensor& places = inputs.position_ids;
  at::Tensor x;
  if (places.defined()) {
    x = wte_->forward(inputs.input_ids) + wpe_->forward(places);
  } else if (past > 0) {
    x = wte_->forward(inputs.input_ids) +
        wpe_->weight.slice(0, past, past + inputs.input_ids.size(1));
  } else {
    x = ops::embedding(inputs.input_ids, wte_->weight, wpe_->weight);
  }
  if (inputs.token_type_ids.defined()) x = x + wte_->forward(inputs.token_type_ids);
  return drop_out(x, embedding_dropout_, is_training());
}

at::Tensor Gpt2Model::attend_to(const Gpt2Attention& attention, const at::Tensor& x,
                                const AttendOptions& attend_options, KeyValueCache* cache,
                                size_t layer) const {
  const double dropped = is_training() ? attention_dropout_ : 0.0;
  if (cache == nullptr && !attend_options.mask.defined()) {
    return ops::self_attention(
        x, attention->c_attn->weight, attention->c_attn->bias, heads_,
        {.causal = attend_options.causal, .dropout = dropped, .scale = attention->scale},
        kInputsFirst);
  }
  const auto parts = attention->c_attn->forward(x).chunk(3, -1);
  const at::Tensor query = split_heads(parts[0], heads_);
  at::Tensor key = split_heads(parts[1], heads_);
  at::Tensor value = split_heads(parts[2], heads_);
  if (cache != nullptr) std::tie(key, value) = cache->append(layer, key, value);
  return merge_heads(attend(query, key, value,
                            {.mask = attend_options.mask,
                             .causal = attend_options.causal,
                             .dropout = dropped,
                             .scale = attention->scale}));
}

at::Tensor Gpt2Model::activate(const Gpt2Mlp& mlp, const at::Tensor& x) const {
  if (activation_name_ == "gelu_new" || activation_name_ == "gelu") {
    const auto kind = activation_name_ == "gelu" ? ops::Gelu::kErf : ops::Gelu::kTanh;
    return ops::gelu(product(x, mlp->c_fc), mlp->c_fc->bias, kind);
  }
  return activation_(mlp->c_fc->forward(x));
}

std::tuple<at::Tensor, at::Tensor> Gpt2Model::add_and_norm(const at::Tensor& sum,
                                                           const at::Tensor& branch,
                                                           const at::Tensor& bias,
                                                           const LayerNorm& norm) const {
  if (is_training() && residual_dropout_ > 0) {
    return ops::residual_layer_norm(sum, drop_out(branch + bias, residual_dropout_, true),
                                    norm->weight, norm->bias, norm->eps);
  }
  return ops::residual_layer_norm(sum, branch, norm->weight, norm->bias, norm->eps, bias);
}

ModelOutput Gpt2Model::forward(const ModelInputs& inputs, const ForwardOptions& options) {
  const int64_t past = options.cache != nullptr ? options.cache->length() : 0;
  const int64_t vocabulary = wte_->weight.size(0);
  check_text(inputs,
             {.vocabulary = vocabulary, .positions = positions(), .token_types = vocabulary},
             architecture(), past);
  const AttendOptions attend_options = causal_attention(
      inputs.input_ids.size(1), past, inputs.attention_mask, inputs.input_ids.device());
  ModelOutput output;
  at::Tensor sum = embed(inputs, past);
  const LayerNorm& first = blocks_.front()->ln_1;
  at::Tensor x = ops::layer_norm(sum, first->weight, first->bias, first->eps);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    if (options.output_hidden_states) output.hidden_states.push_back(sum);
    const Gpt2Block& block = blocks_[layer];
    x = attend_to(block->attn, x, attend_options, options.cache, layer);
    x = product(x, block->attn->c_proj);
    std::tie(sum, x) = add_and_norm(sum, x, block->attn->c_proj->bias, block->ln_2);
    x = product(activate(block->mlp, x), block->mlp->c_proj);
    const LayerNorm& next = layer + 1 < blocks_.size() ? blocks_[layer + 1]->ln_1 : ln_f_;
    std::tie(sum, x) = add_and_norm(sum, x, block->mlp->c_proj->bias, next);
  }
  if (options.output_hidden_states) output.hidden_states.push_back(x);
  output.last_hidden_state = x;
  return output;
}

}  // namespace accelerate::transformers
