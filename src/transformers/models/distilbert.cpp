// DistilBERT: a BERT of half the layers, without token types and pooler, and with names of its own.
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model_config/model_sizes.h"
#include "transformers/models/all_models.h"
#include "transformers/models/allocation.h"
#include "transformers/models/config_document.h"
#include "transformers/models/encoder_block.h"
#include "transformers/models/encoder_heads.h"
#include "transformers/models/masked_lm.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

// Not among the settings.
constexpr double kEps = 1e-12;

struct DistilBertSettings : model_config::DistilBertSizes {
  explicit DistilBertSettings(const ModelConfig& config)
      : DistilBertSizes(model_config::distilbert_sizes(document_of(config))),
        padding(padding_row(config, 0, vocabulary)),
        dropout(config.probability("dropout", 0.1)),
        attention_dropout(config.probability("attention_dropout", 0.1)),
        act(activation(config.text("activation", "gelu"), "activation",
                       config.source_of("activation"))) {}

  int64_t padding;
  double dropout, attention_dropout;
  Activation act;
};

EncoderBlock make_distilbert_block(const DistilBertSettings& settings) {
  EncoderBlock block = make_encoder_block(settings.width, settings.inner_width, kEps);
  block.heads = settings.heads;
  block.attention_dropout = settings.attention_dropout;
  block.dropout = settings.dropout;
  block.act = settings.act;
  return block;
}

void register_distilbert_layer(torch::nn::Module& layer, const EncoderBlock& block) {
  torch::nn::Module& attention = room(layer, "attention");
  attention.register_module("q_lin", block.query);
  attention.register_module("k_lin", block.key);
  attention.register_module("v_lin", block.value);
  attention.register_module("out_lin", block.attended);
  layer.register_module("sa_layer_norm", block.attended_norm);
  torch::nn::Module& ffn = room(layer, "ffn");
  ffn.register_module("lin1", block.inner);
  ffn.register_module("lin2", block.outer);
  layer.register_module("output_layer_norm", block.norm);
}

// sin and cos of the position at wavelengths from 2 pi to 20,000 pi, by turns.
void fill_with_waves(at::Tensor table) {
  const int64_t width = table.size(1);
  const at::Tensor places = at::arange(table.size(0), at::kDouble).unsqueeze(1);
  const at::Tensor powers = at::arange(width, at::kDouble).div(2, "floor").mul(2.0 / width);
  const at::Tensor angles = places / at::pow(10000.0, powers);
  const at::Tensor odd = at::arange(width).remainder(2).to(at::kBool);
  table.copy_(at::where(odd, angles.cos(), angles.sin()));
}

class DistilBertModel : public PretrainedModel {
 public:
  static constexpr const char* kName = "DistilBert";
  static constexpr const char* kPrefix = "distilbert";

  explicit DistilBertModel(const ModelConfig& config)
      : PretrainedModel(config),
        settings_(config),
        words_(settings_.vocabulary, settings_.width, settings_.padding),
        positions_(settings_.positions, settings_.width),
        norm_(settings_.width, kEps) {
    torch::nn::Module& embeddings = room(*this, "embeddings");
    embeddings.register_module("word_embeddings", words_);
    embeddings.register_module("position_embeddings", positions_);
    embeddings.register_module("LayerNorm", norm_);
    torch::nn::Module& list = room(room(*this, "transformer"), "layer");
    for (int64_t i = 0; i < settings_.layers; ++i) {
      EncoderBlock block = make_distilbert_block(settings_);
      register_distilbert_layer(room(list, std::to_string(i)), block);
      layers_.add(std::move(block));
    }
  }

  std::string architecture() const override { return "DistilBertModel"; }
  std::string base_model_prefix() const override { return kPrefix; }
  static std::shared_ptr<DistilBertModel> for_head(const ModelConfig& config) {
    return std::make_shared<DistilBertModel>(config);
  }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    ModelOutput output;
    EncoderStack::Options encoder = encoder_options(inputs);
    if (options.output_hidden_states) encoder.hidden_states = &output.hidden_states;
    output.last_hidden_state = layers_.all(embedded(inputs), encoder);
    return output;
  }

  // [batch, width] of the first position of the last hidden state. Adds to the output what options
  // ask for; only what is needed for that is computed.
  at::Tensor forward_first(const ModelInputs& inputs, const ForwardOptions& options,
                           ModelOutput& output) {
    if (!options.output_hidden_states) {
      return layers_.first(embedded(inputs), encoder_options(inputs));
    }
    ModelOutput all = forward(inputs, options);
    output.hidden_states = std::move(all.hidden_states);
    return all.last_hidden_state.select(1, 0);
  }

  void initialise(const std::string& name, at::Tensor parameter) const override {
    const at::NoGradGuard no_gradient;
    if (name.ends_with("position_embeddings.weight") &&
        config().flag("sinusoidal_pos_embds", false)) {
      fill_with_waves(parameter);
      return;
    }
    PretrainedModel::initialise(name, parameter);
    if (!name.ends_with("word_embeddings.weight") || settings_.padding < 0) return;
    parameter.select(0, settings_.padding).zero_();
  }

  std::vector<std::string> token_parameters() const override {
    return {"embeddings.word_embeddings.weight"};
  }

  const DistilBertSettings& settings() const { return settings_; }
  int64_t width() const { return settings_.width; }
  // Of single tokens.
  double classifier_dropout() const { return settings_.dropout; }
  const at::Tensor& words() const { return words_->weight; }

 private:
  EncoderStack::Options encoder_options(const ModelInputs& inputs) const {
    return {.padding = inputs.attention_mask, .training = is_training()};
  }
  at::Tensor embedded(const ModelInputs& inputs) const {
    check_text(inputs, {.vocabulary = words_->weight.size(0), .positions = settings_.positions},
               architecture());
    const at::Tensor places = inputs.position_ids.defined()
                                  ? positions_->forward(inputs.position_ids)
                                  : positions_->weight.slice(0, 0, inputs.input_ids.size(1));
    return drop_out(norm_->forward(words_->forward(inputs.input_ids) + places), settings_.dropout,
                    is_training());
  }

  DistilBertSettings settings_;
  Embedding words_, positions_;
  LayerNorm norm_;
  EncoderStack layers_{};
};

class DistilBertForSequenceClassification : public EncoderWithHead<DistilBertModel> {
 public:
  explicit DistilBertForSequenceClassification(const ModelConfig& config)
      : EncoderWithHead(config, DistilBertModel::for_head(config)),
        dropout_(config.probability("seq_classif_dropout", 0.2)),
        pre_classifier_(register_module("pre_classifier", Linear(base().width(), base().width()))),
        classifier_(register_module("classifier", Linear(base().width(), config.num_labels()))) {}

  std::string architecture() const override { return "DistilBertForSequenceClassification"; }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    ModelOutput output;
    const at::Tensor first = base().forward_first(inputs, options, output);
    const at::Tensor seen = at::relu(pre_classifier_->forward(first));
    output.logits = classifier_->forward(drop_out(seen, dropout_, is_training()));
    if (inputs.labels.defined()) {
      output.loss = sequence_classification_loss(this->config(), output.logits, inputs.labels);
    }
    return output;
  }

 private:
  double dropout_;
  Linear pre_classifier_, classifier_;
};

class DistilBertForMaskedLm : public EncoderForMaskedLm<DistilBertModel> {
 public:
  explicit DistilBertForMaskedLm(const ModelConfig& config) : EncoderForMaskedLm(config) {
    const DistilBertSettings& settings = base().settings();
    WordHead head{.dense = Linear(settings.width, settings.width),
                  .norm = LayerNorm(settings.width, kEps),
                  .act = settings.act,
                  .decoder_name = "vocab_projector"};
    register_module("vocab_transform", head.dense);
    register_module("vocab_layer_norm", head.norm);
    head.decoder = room(*this, "vocab_projector").shared_from_this();
    head.bias = head.decoder->register_parameter("bias", new_parameter({settings.vocabulary}));
    set_head(std::move(head), settings.tied_words);
  }
};

}  // namespace

void register_distilbert() {
  register_own<DistilBertModel>("distilbert", ModelTask::kBase);
  register_own<DistilBertForSequenceClassification>("distilbert",
                                                    ModelTask::kSequenceClassification);
  register_own<EncoderForTokenClassification<DistilBertModel>>("distilbert",
                                                               ModelTask::kTokenClassification);
  register_own<DistilBertForMaskedLm>("distilbert", ModelTask::kMaskedLm);
}

}  // namespace accelerate::transformers
