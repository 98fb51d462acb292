#include "transformers/models/losses.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <sstream>
#include <string>

#include "accelerate/errors.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

std::string guess(const at::Tensor& logits, const at::Tensor& labels) {
  if (logits.size(-1) == 1) return "regression";
  const at::ScalarType type = labels.scalar_type();
  return type == at::kLong || type == at::kInt ? "single_label_classification"
                                               : "multi_label_classification";
}

// Half types lose the small differences.
at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

// One number for each score.
void check_targets(const at::Tensor& labels, const at::Tensor& scores) {
  if (labels.sizes() == scores.sizes()) return;
  std::ostringstream text;
  text << "labels has the shape " << labels.sizes() << ", the predictions have " << scores.sizes();
  throw UsageError({.what = text.str(), .hint = "give one label for each"});
}

}  // namespace

at::Tensor sequence_classification_loss(ModelConfig& config, const at::Tensor& logits,
                                        const at::Tensor& labels) {
  if (!config.has("problem_type")) config.set("problem_type", guess(logits, labels));
  const std::string type = config.text("problem_type");
  const at::Tensor scores = wide(logits);
  if (type == "regression") {
    const bool single = scores.size(-1) == 1 && labels.numel() == scores.numel();
    const at::Tensor wanted = single ? labels.view_as(scores) : labels;
    check_targets(wanted, scores);
    return at::mse_loss(scores, wanted.to(scores.scalar_type()));
  }
  if (type == "single_label_classification") return token_loss(scores, labels);
  if (type == "multi_label_classification") {
    check_targets(labels, scores);
    return at::binary_cross_entropy_with_logits(scores, labels.to(scores.scalar_type()));
  }
  throw DataError(
      {.what = "'problem_type' in " + config.source_of("problem_type") + " is '" + type + "'",
       .hint = "known: regression, single_label_classification and "
               "multi_label_classification"});
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels) {
  check_labels(labels, logits.numel() / logits.size(-1), logits.size(-1));
  return at::cross_entropy_loss(wide(logits).flatten(0, -2), labels.to(at::kLong).flatten(),
                                /*weight=*/{}, at::Reduction::Mean, kNoLabel);
}

}  // namespace accelerate::transformers
