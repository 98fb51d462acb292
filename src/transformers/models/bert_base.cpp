#include "transformers/models/bert_base.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "transformers/models/config_document.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

model_config::BertSizes sizes_of(const ModelConfig& config, BertPositions kind) {
  const model_config::Document& document = document_of(config);
  return kind == BertPositions::kFromZero ? model_config::bert_sizes(document)
                                          : model_config::roberta_sizes(document);
}

}  // namespace

BertEmbeddingsImpl::BertEmbeddingsImpl(const ModelConfig& config, const BertSettings& settings,
                                       BertPositions kind)
    : kind_(kind),
      padding_(padding_row(config, kind == BertPositions::kFromZero ? 0 : 1, settings.vocabulary)),
      dropout_(settings.dropout),
      words_(settings.vocabulary, settings.width, padding_),
      positions_(settings.positions, settings.width,
                 kind == BertPositions::kFromZero ? -1 : padding_),
      token_types_(settings.token_types, settings.width),
      norm_(settings.width, settings.eps) {
  // The order of Python's parameters, in which optimizers save their state.
  register_module("word_embeddings", words_);
  if (kind_ == BertPositions::kFromZero) register_module("position_embeddings", positions_);
  register_module("token_type_embeddings", token_types_);
  register_module("LayerNorm", norm_);
  if (kind_ == BertPositions::kFromZero) return;
  register_module("position_embeddings", positions_);
  if (padding_ < 0) {
    throw DataError({.what = "'pad_token_id' in " + config.name() +
                             " is not in the vocabulary, but positions are counted from it"});
  }
}

at::Tensor BertEmbeddingsImpl::after_padding(const at::Tensor& ids) const {
  const at::Tensor text = ids.ne(padding_).to(at::kLong);
  at::Tensor numbers = text.cumsum(1).mul_(text).add_(padding_);
  const int64_t rows = positions_->weight.size(0);
  // Only a text that might be too long is worth waiting for the device.
  if (ids.numel() > 0 && ids.size(1) + padding_ >= rows && numbers.max().item<int64_t>() >= rows) {
    throw UsageError({.what = "texts of up to " +
                              std::to_string(numbers.max().item<int64_t>() - padding_) +
                              " tokens for a model that has positions for " +
                              std::to_string(rows - padding_ - 1),
                      .hint = "truncate them when you tokenize"});
  }
  return numbers;
}

at::Tensor BertEmbeddingsImpl::position_rows(const ModelInputs& inputs) {
  if (inputs.position_ids.defined()) return positions_->forward(inputs.position_ids);
  if (kind_ == BertPositions::kAfterPadding) {
    return positions_->forward(after_padding(inputs.input_ids));
  }
  return positions_->weight.slice(0, 0, inputs.input_ids.size(1));
}

at::Tensor BertEmbeddingsImpl::forward(const ModelInputs& inputs) {
  const at::Tensor types = inputs.token_type_ids.defined()
                               ? token_types_->forward(inputs.token_type_ids)
                               : token_types_->weight.select(0, 0);
  const at::Tensor sum = words_->forward(inputs.input_ids) + types + position_rows(inputs);
  return drop_out(norm_->forward(sum), dropout_, is_training());
}

BertPoolerImpl::BertPoolerImpl(int64_t width)
    : dense_(register_module("dense", Linear(width, width))) {}

at::Tensor BertPoolerImpl::forward(const at::Tensor& x) { return at::tanh(dense_->forward(x)); }

BertBase::BertBase(const ModelConfig& config, BertPositions kind, bool with_pooler)
    : PretrainedModel(config), settings_(config, sizes_of(config, kind)), kind_(kind) {
  embeddings_ = register_module("embeddings", BertEmbeddings(config, settings_, kind));
  encoder_ = register_module("encoder", BertEncoder(settings_));
  if (with_pooler) pooler_ = register_module("pooler", BertPooler(settings_.width));
}

void BertBase::check(const ModelInputs& inputs) const {
  // RoBERTa's positions depend on what is padding: its embeddings look at that.
  const bool counted = kind_ == BertPositions::kAfterPadding && !inputs.position_ids.defined();
  check_text(inputs,
             {.vocabulary = words().size(0),
              .positions = counted ? kNoTable : settings_.positions,
              .token_types = settings_.token_types},
             architecture());
}

EncoderStack::Options BertBase::encoder_options(const ModelInputs& inputs) const {
  return {.padding = inputs.attention_mask, .causal = settings_.causal, .training = is_training()};
}

ModelOutput BertBase::forward(const ModelInputs& inputs, const ForwardOptions& options) {
  check(inputs);
  ModelOutput output;
  EncoderStack::Options encoder = encoder_options(inputs);
  if (options.output_hidden_states) encoder.hidden_states = &output.hidden_states;
  output.last_hidden_state = encoder_->layers().all(embeddings_->forward(inputs), encoder);
  if (pooler_) output.pooler_output = pooler_->forward(output.last_hidden_state.select(1, 0));
  return output;
}

at::Tensor BertBase::forward_first(const ModelInputs& inputs, const ForwardOptions& options,
                                   ModelOutput& output) {
  if (options.output_hidden_states || settings_.causal) {
    ModelOutput all = forward(inputs, options);
    output.hidden_states = std::move(all.hidden_states);
    return pooler_ ? all.pooler_output : all.last_hidden_state.select(1, 0);
  }
  check(inputs);
  const at::Tensor first =
      encoder_->layers().first(embeddings_->forward(inputs), encoder_options(inputs));
  return pooler_ ? pooler_->forward(first) : first;
}

void BertBase::initialise(const std::string& name, at::Tensor parameter) const {
  PretrainedModel::initialise(name, parameter);
  const bool padded =
      name.ends_with("word_embeddings.weight") ||
      (kind_ == BertPositions::kAfterPadding && name.ends_with("position_embeddings.weight"));
  if (!padded || embeddings_->padding() < 0) return;
  const at::NoGradGuard no_gradient;
  parameter.select(0, embeddings_->padding()).zero_();
}

}  // namespace accelerate::transformers
