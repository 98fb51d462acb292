// What the models with text for input ask of ModelInputs.
#pragma once

#include <cstdint>
#include <string>

#include "accelerate/transformers/config.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

// Throws UsageError unless there are input_ids [batch, positions], at least one and with those in
// the cache not more than `positions`, numbers of the same shape (those of positions may be of one
// text for all), and a mask for them and the `past` ones before. `model` is for the message.
void check_text(const ModelInputs& inputs, int64_t positions, const std::string& model,
                int64_t past = 0);

// The row of an embedding that stands for padding: pad_token_id, counted from the end if it is
// negative; -1 if that is null or none in [0, rows).
int64_t padding_row(const ModelConfig& config, int64_t otherwise, int64_t rows);

// One of `heads` parts of `width`; DataError that names the keys if it cannot be cut like that.
void check_heads(const ModelConfig& config, int64_t width, int64_t heads);

}  // namespace accelerate::transformers
