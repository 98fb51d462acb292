// What the models with text for input ask of ModelInputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>

#include "accelerate/transformers/config.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

// The number of positions of models that have no table of them.
inline constexpr int64_t kNoTable = std::numeric_limits<int64_t>::max();

// What a model has rows for.
struct TextLimits {
  int64_t vocabulary = kNoTable;
  int64_t positions = kNoTable;
  int64_t token_types = kNoTable;
  // What texts and their mask are called in messages.
  const char* ids = "input_ids";
  const char* mask = "attention_mask";
};

// Throws UsageError unless there are input_ids [batch, positions], at least one and with those in
// the cache not more than `positions`, numbers of the same shape (those of positions may be of one
// text for all), and a mask for them and the `past` ones before; and unless all numbers are within
// the limits. These are read on the CPU alone, as on a GPU that would wait for the device, unless
// ACCELERATE_DEBUG_MODE is set. `model` is for the message.
void check_text(const ModelInputs& inputs, const TextLimits& limits, const std::string& model,
                int64_t past = 0);

// Throws UsageError unless `labels` are whole numbers, as many as `rows`, and on the CPU each of
// them in [0, classes) or kNoLabel.
void check_labels(const at::Tensor& labels, int64_t rows, int64_t classes);

// The row of an embedding that stands for padding: pad_token_id, counted from the end if it is
// negative; -1 if that is null or none in [0, rows).
int64_t padding_row(const ModelConfig& config, int64_t otherwise, int64_t rows);

}  // namespace accelerate::transformers
