// What is done to the scores of the next token before one is chosen. All take and change float32
// [batch, vocabulary].
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "transformers/generation/settings.h"

namespace accelerate::transformers {

// Tokens of `seen` [batch, positions] become less likely: positive scores are divided by `penalty`,
// negative ones multiplied.
void penalise_repetition(at::Tensor& scores, const at::Tensor& seen, double penalty);

// The k best are kept, and all that are as good as the last of them; the others become -infinity.
void keep_top_k(at::Tensor& scores, int64_t k);

// The fewest likeliest tokens are kept whose probabilities add up to `p` or more, at least one.
void keep_top_p(at::Tensor& scores, double p);

// All of them that the settings ask for, in the order of Hugging Face's transformers: repetition,
// EOS before min_length, temperature, top-k, top-p. `seen` are the tokens so far.
void process_scores(at::Tensor& scores, const at::Tensor& seen, const GenerationSettings& settings);

// The next token of each text, [batch] of int64: the best, or one drawn by its probability.
at::Tensor choose_tokens(const at::Tensor& scores, bool sample,
                         const std::optional<at::Generator>& generator);

}  // namespace accelerate::transformers
