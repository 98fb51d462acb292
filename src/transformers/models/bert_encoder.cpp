#include "transformers/models/bert_encoder.h"

#include <string>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

void refuse_what_is_not_here(const ModelConfig& config) {
  const std::string positions = config.text("position_embedding_type", "absolute");
  if (positions != "absolute") {
    throw DataError({.what = "'position_embedding_type' in " +
                             config.source_of("position_embedding_type") + " is '" + positions +
                             "'; only 'absolute' is supported"});
  }
  if (config.flag("add_cross_attention", false)) {
    throw DataError({.what = "'add_cross_attention' in " + config.source_of("add_cross_attention") +
                             " asks for a decoder with cross-attention, which is not supported"});
  }
}

EncoderBlock make_bert_block(const BertSettings& settings) {
  EncoderBlock block = make_encoder_block(settings.width, settings.inner_width, settings.eps);
  block.heads = settings.heads;
  block.attention_dropout = settings.attention_dropout;
  block.attended_dropout = settings.dropout;
  block.dropout = settings.dropout;
  block.act = settings.act;
  return block;
}

void register_bert_layer(torch::nn::Module& layer, const EncoderBlock& block) {
  torch::nn::Module& attention = room(layer, "attention");
  torch::nn::Module& self = room(attention, "self");
  self.register_module("query", block.query);
  self.register_module("key", block.key);
  self.register_module("value", block.value);
  torch::nn::Module& attended = room(attention, "output");
  attended.register_module("dense", block.attended);
  attended.register_module("LayerNorm", block.attended_norm);
  room(layer, "intermediate").register_module("dense", block.inner);
  torch::nn::Module& output = room(layer, "output");
  output.register_module("dense", block.outer);
  output.register_module("LayerNorm", block.norm);
}

}  // namespace

BertSettings::BertSettings(const ModelConfig& config, const model_config::BertSizes& sizes)
    : BertSizes(sizes),
      dropout(config.probability("hidden_dropout_prob", 0.1)),
      attention_dropout(config.probability("attention_probs_dropout_prob", 0.1)),
      classifier_dropout(config.probability("classifier_dropout", dropout)),
      eps(config.non_negative("layer_norm_eps", 1e-12)),
      causal(config.flag("is_decoder", false)),
      act(activation(config.text("hidden_act", "gelu"), "hidden_act",
                     config.source_of("hidden_act"))) {
  refuse_what_is_not_here(config);
}

BertEncoderImpl::BertEncoderImpl(const BertSettings& settings) {
  torch::nn::Module& list = room(*this, "layer");
  for (int64_t i = 0; i < settings.layers; ++i) {
    EncoderBlock block = make_bert_block(settings);
    register_bert_layer(room(list, std::to_string(i)), block);
    layers_.add(std::move(block));
  }
}

}  // namespace accelerate::transformers
