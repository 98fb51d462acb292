// The losses of the heads, in float32 or, of such models, float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "accelerate/transformers/config.h"

namespace accelerate::transformers {

// The label of a position that counts for nothing.
inline constexpr int64_t kNoLabel = -100;

// By problem_type of the configuration. Where that is missing the first call sets it, so that it is
// saved with the model: one label means regression, integers single_label_classification, others
// multi_label_classification.
at::Tensor sequence_classification_loss(ModelConfig& config, const at::Tensor& logits,
                                        const at::Tensor& labels);
// Cross entropy of [..., classes] with [...] labels of int64, of which -100 do not count.
at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace accelerate::transformers
