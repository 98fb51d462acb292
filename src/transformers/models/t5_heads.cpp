// Classifiers on T5.
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "transformers/models/all_models.h"
#include "transformers/models/layers.h"
#include "transformers/models/losses.h"
#include "transformers/models/t5.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

// What both share: the body, as "transformer".
class T5Classifier : public PretrainedModel {
 public:
  T5Classifier(const ModelConfig& config, T5Parts parts)
      : PretrainedModel(config),
        dropout_(config.probability("classifier_dropout", 0.0)),
        transformer_(register_module("transformer", std::make_shared<T5Model>(config, parts))) {}

  std::string base_model_prefix() const override { return "transformer"; }
  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    auto names = transformer_->tied_weights();
    for (auto& [other, name] : names) {
      other.insert(0, kPrefix);
      name.insert(0, kPrefix);
    }
    return names;
  }
  bool untie(const std::string& name) override {
    return name.starts_with(kPrefix) &&
           transformer_->untie(name.substr(std::string(kPrefix).size()));
  }
  std::vector<std::string> token_parameters() const override {
    return prefixed("transformer", transformer_->token_parameters());
  }
  std::vector<std::string> keep_in_fp32_modules() const override {
    return transformer_->keep_in_fp32_modules();
  }
  void initialise(const std::string& name, at::Tensor parameter) const override {
    transformer_->initialise(name, std::move(parameter));
  }

 protected:
  at::Tensor dropped(const at::Tensor& x) const { return drop_out(x, dropout_, is_training()); }

  static constexpr const char* kPrefix = "transformer.";
  const double dropout_;
  const std::shared_ptr<T5Model> transformer_;
};

// The decoder reads the text again; a class is found where it has read the last EOS.
class T5ForSequenceClassification : public T5Classifier {
 public:
  explicit T5ForSequenceClassification(const ModelConfig& config)
      : T5Classifier(config, T5Parts::kBoth),
        dense_(transformer_->width(), transformer_->width()),
        scores_(transformer_->width(), config.num_labels()) {
    torch::nn::Module& head = room(*this, "classification_head");
    head.register_module("dense", dense_);
    head.register_module("out_proj", scores_);
  }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    check_text({.input_ids = inputs.input_ids, .attention_mask = inputs.attention_mask}, {},
               architecture());
    ModelInputs given = inputs;
    given.labels = at::Tensor();
    if (!given.decoder_input_ids.defined()) {
      given.decoder_input_ids = shifted_right(inputs.input_ids, config());
    }
    ModelOutput output = transformer_->forward(given, options);
    const at::Tensor last = at_last_eos(output.last_hidden_state, inputs.input_ids);
    output.last_hidden_state = at::Tensor();
    output.logits = scores_->forward(dropped(at::tanh(dense_->forward(dropped(last)))));
    if (inputs.labels.defined()) {
      output.loss = sequence_classification_loss(config(), output.logits, inputs.labels);
    }
    return output;
  }
  std::string architecture() const override { return "T5ForSequenceClassification"; }
  bool is_encoder_decoder() const override { return true; }
  at::Tensor encode(const ModelInputs& inputs) override { return transformer_->encode(inputs); }

 private:
  at::Tensor at_last_eos(const at::Tensor& states, const at::Tensor& ids) const {
    if (ids.sizes() != states.sizes().slice(0, 2)) {
      throw UsageError({.what = "a text is classified by the decoder's state at its EOS: "
                                "decoder_input_ids must have the shape of input_ids",
                        .where = architecture()});
    }
    const at::Tensor is_eos = ids == config().integer("eos_token_id", 1);
    // As in Python the host waits here for a device.
    if (!is_eos.any(1).all().item<bool>()) {
      throw UsageError({.what = "a text has no token " +
                                std::to_string(config().integer("eos_token_id", 1)) +
                                ", the EOS, by whose place it is classified",
                        .where = architecture(),
                        .hint = "tokenize texts with their special tokens"});
    }
    const at::Tensor last = (at::arange(ids.size(1), ids.options()) * is_eos).argmax(1);
    return states.gather(1, last.view({-1, 1, 1}).expand({-1, 1, states.size(2)})).squeeze(1);
  }

  Linear dense_, scores_;
};

// By the encoder alone.
class T5ForTokenClassification : public T5Classifier {
 public:
  explicit T5ForTokenClassification(const ModelConfig& config)
      : T5Classifier(config, T5Parts::kEncoder),
        classifier_(
            register_module("classifier", Linear(transformer_->width(), config.num_labels()))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    ModelOutput output;
    const at::Tensor states = transformer_->encode_states(
        inputs, options.output_hidden_states ? &output.hidden_states : nullptr);
    output.logits = classifier_->forward(dropped(states));
    if (inputs.labels.defined()) output.loss = token_loss(output.logits, inputs.labels);
    return output;
  }
  std::string architecture() const override { return "T5ForTokenClassification"; }

 private:
  Linear classifier_;
};

}  // namespace

void register_t5_heads() {
  register_own<T5ForSequenceClassification>("t5", ModelTask::kSequenceClassification);
  register_own<T5ForTokenClassification>("t5", ModelTask::kTokenClassification);
}

}  // namespace accelerate::transformers
