// What encoders of text with a head share. `Base` is the model without one: a PretrainedModel with
// kName ("Bert"), kPrefix ("bert"), for_head(config), which makes it without a pooler, width() and
// classifier_dropout().
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/transformers/model.h"
#include "transformers/models/layers.h"
#include "transformers/models/losses.h"

namespace accelerate::transformers {

// Holds the base under its name.
template <class Base>
class EncoderWithHead : public PretrainedModel {
 public:
  EncoderWithHead(const ModelConfig& config, std::shared_ptr<Base> base)
      : PretrainedModel(config), base_(register_module(Base::kPrefix, std::move(base))) {}

  std::string base_model_prefix() const override { return Base::kPrefix; }
  void initialise(const std::string& name, at::Tensor parameter) const override {
    base_->initialise(name, std::move(parameter));
  }
  std::vector<std::string> token_parameters() const override {
    return prefixed(Base::kPrefix, base_->token_parameters());
  }

 protected:
  struct Encoded {
    ModelOutput output{};  // of the hidden states what the caller asked for
    at::Tensor last{};
  };
  Encoded encoded(const ModelInputs& inputs, const ForwardOptions& options) {
    Encoded result{.output = base_->forward(inputs, options)};
    result.last = std::exchange(result.output.last_hidden_state, {});
    return result;
  }

  Base& base() { return *base_; }
  const Base& base() const { return *base_; }

 private:
  std::shared_ptr<Base> base_;
};

// A class for each token.
template <class Base>
class EncoderForTokenClassification : public EncoderWithHead<Base> {
 public:
  explicit EncoderForTokenClassification(const ModelConfig& config)
      : EncoderWithHead<Base>(config, Base::for_head(config)),
        classifier_(this->register_module("classifier",
                                          Linear(this->base().width(), config.num_labels()))) {}

  std::string architecture() const override {
    return std::string(Base::kName) + "ForTokenClassification";
  }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    auto [output, last] = this->encoded(inputs, options);
    output.logits = classifier_->forward(
        drop_out(last, this->base().classifier_dropout(), this->is_training()));
    if (inputs.labels.defined()) output.loss = token_loss(output.logits, inputs.labels);
    return std::move(output);
  }

 private:
  Linear classifier_;
};

}  // namespace accelerate::transformers
