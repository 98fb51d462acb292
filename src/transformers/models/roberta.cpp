// RoBERTa: BERT with other positions and heads.
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformers/models/all_models.h"
#include "transformers/models/allocation.h"
#include "transformers/models/bert_base.h"
#include "transformers/models/encoder_heads.h"
#include "transformers/models/masked_lm.h"

namespace accelerate::transformers {
namespace {

class RobertaModel : public BertBase {
 public:
  static constexpr const char* kName = "Roberta";
  static constexpr const char* kPrefix = "roberta";

  explicit RobertaModel(const ModelConfig& config, bool with_pooler = true)
      : BertBase(config, BertPositions::kAfterPadding, with_pooler) {}

  std::string architecture() const override { return "RobertaModel"; }
  std::string base_model_prefix() const override { return kPrefix; }
  static std::shared_ptr<RobertaModel> for_head(const ModelConfig& config) {
    return std::make_shared<RobertaModel>(config, /*with_pooler=*/false);
  }
};

class RobertaForSequenceClassification : public EncoderWithHead<RobertaModel> {
 public:
  explicit RobertaForSequenceClassification(const ModelConfig& config)
      : EncoderWithHead(config, RobertaModel::for_head(config)),
        dense_(base().width(), base().width()),
        scores_(base().width(), config.num_labels()) {
    torch::nn::Module& classifier = room(*this, "classifier");
    classifier.register_module("dense", dense_);
    classifier.register_module("out_proj", scores_);
  }

  std::string architecture() const override { return "RobertaForSequenceClassification"; }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    ModelOutput output;
    const at::Tensor first = base().forward_first(inputs, options, output);
    const auto drop = [&](const at::Tensor& x) {
      return drop_out(x, base().classifier_dropout(), is_training());
    };
    output.logits = scores_->forward(drop(at::tanh(dense_->forward(drop(first)))));
    if (inputs.labels.defined()) {
      output.loss = sequence_classification_loss(this->config(), output.logits, inputs.labels);
    }
    return output;
  }

 private:
  Linear dense_, scores_;
};

class RobertaForMaskedLm : public EncoderForMaskedLm<RobertaModel> {
 public:
  explicit RobertaForMaskedLm(const ModelConfig& config) : EncoderForMaskedLm(config) {
    const BertSettings& settings = base().settings();
    torch::nn::Module& lm_head = room(*this, "lm_head");
    // Whatever hidden_act is.
    WordHead head{.dense = Linear(settings.width, settings.width),
                  .norm = LayerNorm(settings.width, settings.eps),
                  .act = [](const at::Tensor& x) { return at::gelu(x); },
                  .decoder = room(lm_head, "decoder").shared_from_this(),
                  .decoder_name = "lm_head.decoder",
                  .tied_bias_name = "lm_head.bias"};
    lm_head.register_module("dense", head.dense);
    lm_head.register_module("layer_norm", head.norm);
    head.tied_bias = lm_head.register_parameter("bias", new_parameter({settings.vocabulary}));
    set_head(std::move(head), settings.tied_words);
  }
};

}  // namespace

void register_roberta() {
  register_own<RobertaModel>("roberta", ModelTask::kBase);
  register_own<RobertaForSequenceClassification>("roberta", ModelTask::kSequenceClassification);
  register_own<EncoderForTokenClassification<RobertaModel>>("roberta",
                                                            ModelTask::kTokenClassification);
  register_own<RobertaForMaskedLm>("roberta", ModelTask::kMaskedLm);
}

}  // namespace accelerate::transformers
