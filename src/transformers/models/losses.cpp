#include "transformers/models/losses.h"

#include <ATen/ATen.h>

#include <string>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

std::string problem_type(const ModelConfig& config, const at::Tensor& labels) {
  if (config.has("problem_type")) return config.text("problem_type");
  if (config.num_labels() == 1) return "regression";
  return at::isIntegralType(labels.scalar_type(), /*includeBool=*/false)
             ? "single_label_classification"
             : "multi_label_classification";
}

}  // namespace

at::Tensor sequence_classification_loss(const ModelConfig& config, const at::Tensor& logits,
                                        const at::Tensor& labels) {
  const std::string type = problem_type(config, labels);
  const at::Tensor scores = logits.to(at::kFloat);
  if (type == "regression") {
    const at::Tensor wanted = labels.to(at::kFloat);
    return config.num_labels() == 1 ? at::mse_loss(scores.flatten(), wanted.flatten())
                                    : at::mse_loss(scores, wanted);
  }
  if (type == "single_label_classification") return token_loss(scores, labels);
  if (type == "multi_label_classification") {
    return at::binary_cross_entropy_with_logits(scores, labels.to(at::kFloat));
  }
  throw DataError({.what = "'problem_type' in " + config.name() + " is '" + type + "'",
                   .hint = "known are regression, single_label_classification and "
                           "multi_label_classification"});
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.to(at::kFloat).flatten(0, -2), labels.flatten());
}

at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return token_loss(logits.slice(1, 0, -1), labels.slice(1, 1));
}

}  // namespace accelerate::transformers
