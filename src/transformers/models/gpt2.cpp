#include "transformers/models/gpt2.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformers/models/all_models.h"
#include "transformers/models/config_document.h"
#include "transformers/models/decoding.h"

namespace accelerate::transformers {
namespace {

// What the models with a head share: the body, as "transformer".
class Gpt2WithHead : public PretrainedModel {
 public:
  explicit Gpt2WithHead(const ModelConfig& config)
      : PretrainedModel(config),
        transformer_(register_module("transformer", std::make_shared<Gpt2Model>(config))) {}

  std::string base_model_prefix() const override { return "transformer"; }
  void initialise(const std::string& name, at::Tensor parameter) const override {
    transformer_->initialise(name, parameter);
  }
  std::vector<std::string> token_parameters() const override {
    return prefixed("transformer", transformer_->token_parameters());
  }

 protected:
  const std::shared_ptr<Gpt2Model> transformer_;
};

class Gpt2LmHeadModel : public Gpt2WithHead, public FactoredLogits {
 public:
  explicit Gpt2LmHeadModel(const ModelConfig& config)
      : Gpt2WithHead(config),
        head_(*this, transformer_->embedding(),
              model_config::gpt2_sizes(document_of(config)).tied_words) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    return head_.next_token(transformer_->forward(inputs, options), inputs, options);
  }
  std::string architecture() const override { return "GPT2LMHeadModel"; }
  bool can_generate() const override { return true; }
  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    return head_.tied_weights("transformer.wte.weight");
  }
  bool untie(const std::string& name) override { return head_.untie(*this, name); }
  std::vector<std::string> token_parameters() const override {
    std::vector<std::string> names = Gpt2WithHead::token_parameters();
    for (std::string& name : head_.token_parameters()) names.push_back(std::move(name));
    return names;
  }
  const at::Tensor& output_matrix() const override { return head_.weight(); }
  at::Tensor last_features(const ModelInputs& inputs, const ForwardOptions& options) override {
    return transformer_->forward(inputs, options).last_hidden_state.select(1, -1);
  }
  int64_t most_positions() const override { return transformer_->positions(); }

 private:
  LanguageHead head_;
};

class Gpt2ForSequenceClassification : public Gpt2WithHead {
 public:
  explicit Gpt2ForSequenceClassification(const ModelConfig& config)
      : Gpt2WithHead(config),
        score_(
            register_module("score", Linear(transformer_->width(), config.num_labels(), false))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    return classify_last_token(transformer_->forward(inputs, options), score_, config(), inputs);
  }
  std::string architecture() const override { return "GPT2ForSequenceClassification"; }

 private:
  Linear score_;
};

class Gpt2ForTokenClassification : public Gpt2WithHead {
 public:
  explicit Gpt2ForTokenClassification(const ModelConfig& config)
      : Gpt2WithHead(config),
        dropout_(token_head_dropout(config)),
        classifier_(
            register_module("classifier", Linear(transformer_->width(), config.num_labels()))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    ModelOutput body = transformer_->forward(inputs, options);
    body.last_hidden_state = drop_out(body.last_hidden_state, dropout_, is_training());
    return classify_tokens(std::move(body), classifier_, inputs);
  }
  std::string architecture() const override { return "GPT2ForTokenClassification"; }

 private:
  const double dropout_;
  Linear classifier_;
};

}  // namespace

void register_gpt2() {
  register_own<Gpt2Model>("gpt2", ModelTask::kBase);
  register_own<Gpt2LmHeadModel>("gpt2", ModelTask::kCausalLm);
  register_own<Gpt2ForSequenceClassification>("gpt2", ModelTask::kSequenceClassification);
  register_own<Gpt2ForTokenClassification>("gpt2", ModelTask::kTokenClassification);
}

}  // namespace accelerate::transformers
