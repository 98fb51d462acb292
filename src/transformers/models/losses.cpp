#include "transformers/models/losses.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <string>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

std::string guess(const at::Tensor& logits, const at::Tensor& labels) {
  if (logits.size(-1) == 1) return "regression";
  const at::ScalarType type = labels.scalar_type();
  return type == at::kLong || type == at::kInt ? "single_label_classification"
                                               : "multi_label_classification";
}

}  // namespace

at::Tensor sequence_classification_loss(ModelConfig& config, const at::Tensor& logits,
                                        const at::Tensor& labels) {
  if (!config.has("problem_type")) config.set("problem_type", guess(logits, labels));
  const std::string type = config.text("problem_type");
  const at::Tensor scores = logits.to(at::kFloat);
  if (type == "regression") {
    const at::Tensor wanted = labels.to(at::kFloat);
    return scores.size(-1) == 1 ? at::mse_loss(scores.flatten(), wanted.flatten())
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
  return at::cross_entropy_loss(logits.to(at::kFloat).flatten(0, -2),
                                labels.to(at::kLong).flatten(), /*weight=*/{}, at::Reduction::Mean,
                                kNoLabel);
}

}  // namespace accelerate::transformers
