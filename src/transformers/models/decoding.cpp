#include "transformers/models/decoding.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "transformers/models/losses.h"

namespace accelerate::transformers {
namespace {

bool without_padding(const at::Tensor& mask) {
  return mask.device().is_cpu() && mask.all().item<bool>();
}

// The label of the position after, for each position: the last one has none.
at::Tensor next_labels(const at::Tensor& labels) {
  return at::constant_pad_nd(labels, {0, 1}, kNoLabel).slice(1, 1).contiguous();
}

}  // namespace

AttendOptions causal_attention(int64_t queries, int64_t past, const at::Tensor& mask,
                               c10::Device device) {
  AttendOptions options;
  const bool padded = mask.defined() && !without_padding(mask);
  if (padded && queries == 1) {
    options.mask = padding_mask(mask);
  } else if (padded || (past > 0 && queries > 1)) {
    options.mask = causal_mask(queries, past + queries, padded ? mask : at::Tensor(), device);
  } else {
    options.causal = queries > 1;
  }
  return options;
}

LanguageHead::LanguageHead(torch::nn::Module& owner, const Embedding& embedding, bool tied)
    : embedding_(embedding) {
  if (!tied) untie(owner, "lm_head.weight");
}

const at::Tensor& LanguageHead::weight() const {
  return own_.is_empty() ? embedding_->weight : own_->weight;
}

std::vector<std::pair<std::string, std::string>> LanguageHead::tied_weights(
    const std::string& name) const {
  if (!own_.is_empty()) return {};
  return {{"lm_head.weight", name}};
}

bool LanguageHead::untie(torch::nn::Module& owner, const std::string& name) {
  if (name != "lm_head.weight" || !own_.is_empty()) return false;
  own_ = owner.register_module(
      "lm_head", Linear(embedding_->weight.size(1), embedding_->weight.size(0), false));
  return true;
}

std::vector<std::string> LanguageHead::token_parameters() const {
  if (own_.is_empty()) return {};
  return {"lm_head.weight"};
}

void LanguageHead::score(ModelOutput& output, at::Tensor features, const at::Tensor& labels,
                         const ForwardOptions& options) const {
  if (options.loss_only && labels.defined()) {
    check_labels(labels, features.numel() / features.size(-1), weight().size(0));
    output.loss = ops::linear_cross_entropy(features, weight(), labels);
    return;
  }
  if (options.logits_to_keep > 0 && options.logits_to_keep < features.size(1)) {
    if (labels.defined()) {
      throw UsageError({.what = "a loss needs the logits of all positions, not of the last " +
                                std::to_string(options.logits_to_keep)});
    }
    features = features.slice(1, features.size(1) - options.logits_to_keep);
  }
  output.logits = at::linear(features, weight());
  if (labels.defined()) output.loss = token_loss(output.logits, labels);
}

ModelOutput LanguageHead::next_token(ModelOutput body, const ModelInputs& inputs,
                                     const ForwardOptions& options) const {
  const at::Tensor features = std::move(body.last_hidden_state);
  body.last_hidden_state = at::Tensor();
  if (inputs.labels.defined() && inputs.labels.sizes() != features.sizes().slice(0, 2)) {
    throw UsageError({.what = "labels must have the shape of input_ids"});
  }
  score(body, features, inputs.labels.defined() ? next_labels(inputs.labels) : at::Tensor(),
        options);
  return body;
}

ModelOutput classify_last_token(ModelOutput body, const Linear& score, ModelConfig& config,
                                const ModelInputs& inputs) {
  const at::Tensor features = std::move(body.last_hidden_state);
  body.last_hidden_state = at::Tensor();
  const int64_t batch = features.size(0);
  at::Tensor chosen;
  if (config.has("pad_token_id")) {
    const at::Tensor kept = inputs.input_ids != config.integer("pad_token_id");
    const at::Tensor places = at::arange(features.size(1), inputs.input_ids.options());
    const at::Tensor last = (places * kept).argmax(1);
    chosen = features.gather(1, last.view({-1, 1, 1}).expand({-1, 1, features.size(2)})).squeeze(1);
  } else if (batch == 1) {
    chosen = features.select(1, -1);
  } else {
    throw UsageError({.what = "the last token of each of " + std::to_string(batch) +
                              " texts cannot be found: the model has no pad token",
                      .where = config.name(),
                      .hint = "set it: model->config().set(\"pad_token_id\", ...)"});
  }
  body.logits = score->forward(chosen);
  if (inputs.labels.defined()) {
    body.loss = sequence_classification_loss(config, body.logits, inputs.labels);
  }
  return body;
}

ModelOutput classify_tokens(ModelOutput body, const Linear& score, const ModelInputs& inputs) {
  body.logits = score->forward(body.last_hidden_state);
  body.last_hidden_state = at::Tensor();
  if (inputs.labels.defined()) body.loss = token_loss(body.logits, inputs.labels);
  return body;
}

double token_head_dropout(const ModelConfig& config) {
  const std::string key =
      config.has("classifier_dropout") ? "classifier_dropout" : "hidden_dropout";
  return config.probability(key, 0.1);
}

}  // namespace accelerate::transformers
