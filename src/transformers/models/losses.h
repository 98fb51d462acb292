// The losses of the heads, in float32, as Hugging Face's models compute them.
#pragma once

#include <ATen/core/Tensor.h>

#include "accelerate/transformers/config.h"

namespace accelerate::transformers {

// By problem_type of the configuration, else by num_labels and the type of `labels`: one label
// means regression, integers single_label_classification, others multi_label_classification.
at::Tensor sequence_classification_loss(const ModelConfig& config, const at::Tensor& logits,
                                        const at::Tensor& labels);
// Cross entropy of [..., classes] with [...] labels of int64, of which -100 do not count.
at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels);
// Each position predicts the next one's label.
at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace accelerate::transformers
