#include "transformers/models/bert_encoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "transformers/models/attention.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

void refuse_what_is_not_here(const ModelConfig& config) {
  const std::string positions = config.text("position_embedding_type", "absolute");
  if (positions != "absolute") {
    throw DataError({.what = "'position_embedding_type' in " + config.name() + " is '" + positions +
                             "'; only 'absolute' is known here"});
  }
  if (config.flag("add_cross_attention", false)) {
    throw DataError({.what = "'add_cross_attention' in " + config.name() +
                             " asks for a decoder that looks at an encoder, which this is not"});
  }
}

}  // namespace

BertSettings::BertSettings(const ModelConfig& config)
    : vocabulary(config.size("vocab_size", 30522)),
      width(config.size("hidden_size", 768)),
      layers(config.size("num_hidden_layers", 12)),
      heads(config.size("num_attention_heads", 12)),
      inner_width(config.size("intermediate_size", 3072)),
      positions(config.size("max_position_embeddings", 512)),
      token_types(config.size("type_vocab_size", 2)),
      dropout(config.probability("hidden_dropout_prob", 0.1)),
      attention_dropout(config.probability("attention_probs_dropout_prob", 0.1)),
      classifier_dropout(config.probability("classifier_dropout", dropout)),
      eps(config.number("layer_norm_eps", 1e-12)),
      causal(config.flag("is_decoder", false)),
      act(activation(config.text("hidden_act", "gelu"), "hidden_act", config.name())) {
  refuse_what_is_not_here(config);
  check_heads(config, width, heads);
}

DenseNormImpl::DenseNormImpl(int64_t in, const BertSettings& settings)
    : dense_(register_module("dense", Linear(in, settings.width))),
      norm_(register_module("LayerNorm", LayerNorm(settings.width, settings.eps))),
      dropout_(settings.dropout) {}

at::Tensor DenseNormImpl::forward(const at::Tensor& x, const at::Tensor& past) {
  return norm_->forward(drop_out(dense_->forward(x), dropout_, is_training()) + past);
}

BertLayerImpl::BertLayerImpl(const BertSettings& settings)
    : heads_(settings.heads),
      attention_dropout_(settings.attention_dropout),
      act_(settings.act),
      query_(settings.width, settings.width),
      key_(settings.width, settings.width),
      value_(settings.width, settings.width),
      attention_output_(settings.width, settings),
      intermediate_(settings.width, settings.inner_width),
      output_(settings.inner_width, settings) {
  torch::nn::Module& attention = room(*this, "attention");
  torch::nn::Module& self = room(attention, "self");
  self.register_module("query", query_);
  self.register_module("key", key_);
  self.register_module("value", value_);
  attention.register_module("output", attention_output_);
  room(*this, "intermediate").register_module("dense", intermediate_);
  register_module("output", output_);
}

at::Tensor BertLayerImpl::forward(const at::Tensor& x, const at::Tensor& mask) {
  const at::Tensor seen =
      attend(split_heads(query_->forward(x), heads_), split_heads(key_->forward(x), heads_),
             split_heads(value_->forward(x), heads_),
             {.mask = mask, .dropout = is_training() ? attention_dropout_ : 0.0});
  const at::Tensor attended = attention_output_->forward(merge_heads(seen), x);
  return output_->forward(act_(intermediate_->forward(attended)), attended);
}

BertEncoderImpl::BertEncoderImpl(const BertSettings& settings) : causal_(settings.causal) {
  torch::nn::Module& list = room(*this, "layer");
  for (int64_t i = 0; i < settings.layers; ++i) {
    layers_.push_back(list.register_module(std::to_string(i), BertLayer(settings)));
  }
}

at::Tensor BertEncoderImpl::forward(at::Tensor x, const at::Tensor& padding,
                                    std::vector<at::Tensor>* hidden_states) {
  const at::Tensor mask =
      causal_ ? causal_mask(x.size(1), x.size(1), padding, x.device()) : padding_mask(padding);
  for (BertLayer& layer : layers_) {
    if (hidden_states != nullptr) hidden_states->push_back(x);
    x = layer->forward(x, mask);
  }
  if (hidden_states != nullptr) hidden_states->push_back(x);
  return x;
}

}  // namespace accelerate::transformers
