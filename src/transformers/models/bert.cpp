// BERT: BertModel, BertForSequenceClassification, BertForTokenClassification, BertForMaskedLM.
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

class BertModel : public BertBase {
 public:
  static constexpr const char* kName = "Bert";
  static constexpr const char* kPrefix = "bert";

  explicit BertModel(const ModelConfig& config, bool with_pooler = true)
      : BertBase(config, BertPositions::kFromZero, with_pooler) {}

  std::string architecture() const override { return "BertModel"; }
  std::string base_model_prefix() const override { return kPrefix; }
  static std::shared_ptr<BertModel> for_head(const ModelConfig& config) {
    return std::make_shared<BertModel>(config, /*with_pooler=*/false);
  }
};

class BertForSequenceClassification : public EncoderWithHead<BertModel> {
 public:
  explicit BertForSequenceClassification(const ModelConfig& config)
      : EncoderWithHead(config, std::make_shared<BertModel>(config)),
        classifier_(register_module("classifier", Linear(base().width(), config.num_labels()))) {}

  std::string architecture() const override { return "BertForSequenceClassification"; }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    ModelOutput output;
    const at::Tensor pooled = base().forward_first(inputs, options, output);
    output.logits =
        classifier_->forward(drop_out(pooled, base().classifier_dropout(), is_training()));
    if (inputs.labels.defined()) {
      output.loss = sequence_classification_loss(this->config(), output.logits, inputs.labels);
    }
    return output;
  }

 private:
  Linear classifier_;
};

class BertForMaskedLm : public EncoderForMaskedLm<BertModel> {
 public:
  explicit BertForMaskedLm(const ModelConfig& config) : EncoderForMaskedLm(config) {
    const BertSettings& settings = base().settings();
    torch::nn::Module& predictions = room(room(*this, "cls"), "predictions");
    torch::nn::Module& transform = room(predictions, "transform");
    WordHead head{.dense = Linear(settings.width, settings.width),
                  .norm = LayerNorm(settings.width, settings.eps),
                  .act = settings.act,
                  .decoder = room(predictions, "decoder").shared_from_this(),
                  .decoder_name = "cls.predictions.decoder",
                  .tied_bias_name = "cls.predictions.bias"};
    transform.register_module("dense", head.dense);
    transform.register_module("LayerNorm", head.norm);
    head.tied_bias = predictions.register_parameter("bias", new_parameter({settings.vocabulary}));
    set_head(std::move(head), settings.tied_words);
  }
};

}  // namespace

void register_bert() {
  register_own<BertModel>("bert", ModelTask::kBase);
  register_own<BertForSequenceClassification>("bert", ModelTask::kSequenceClassification);
  register_own<EncoderForTokenClassification<BertModel>>("bert", ModelTask::kTokenClassification);
  register_own<BertForMaskedLm>("bert", ModelTask::kMaskedLm);
}

}  // namespace accelerate::transformers
