#include "transformers/models/text_inputs.h"

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

void check_shape(const at::Tensor& tensor, const at::Tensor& ids, const char* name,
                 int64_t past = 0) {
  if (!tensor.defined()) return;
  const int64_t all = ids.size(1) + past;
  if (tensor.dim() == 2 && tensor.size(0) == ids.size(0) && tensor.size(1) == all) return;
  const std::string before =
      past == 0 ? "" : " after " + std::to_string(past) + " positions in the cache";
  throw UsageError({.what = std::string(name) + " has the shape " + shape_of(tensor) +
                            ", input_ids has " + shape_of(ids) + before,
                    .hint = "give one number for each position of each text"});
}

}  // namespace

void check_text(const ModelInputs& inputs, int64_t positions, const std::string& model,
                int64_t past) {
  const at::Tensor& ids = inputs.input_ids;
  if (!ids.defined()) throw UsageError({.what = model + " was called without input_ids"});
  if (ids.dim() != 2) {
    throw UsageError(
        {.what = "input_ids has the shape " + shape_of(ids) + ", not [batch, positions]",
         .hint = "a single text is a batch of one: unsqueeze(0)"});
  }
  if (ids.numel() == 0) throw UsageError({.what = "input_ids has no tokens"});
  check_shape(inputs.attention_mask, ids, "attention_mask", past);
  check_shape(inputs.token_type_ids, ids, "token_type_ids");
  const at::Tensor& places = inputs.position_ids;
  const bool of_one_text = places.defined() && places.dim() == 2 && places.size(0) == 1;
  if (places.defined()) check_shape(places, of_one_text ? ids.slice(0, 0, 1) : ids, "position_ids");
  const int64_t end = ids.size(1) + past;
  if (places.defined() || end <= positions) return;
  throw UsageError({.what = "texts of " + std::to_string(end) + " positions for " + model +
                            ", which has " + std::to_string(positions),
                    .hint = "truncate them when they are turned into numbers"});
}

int64_t padding_row(const ModelConfig& config, int64_t otherwise, int64_t rows) {
  if (config.is_null("pad_token_id")) return -1;
  const int64_t row = config.integer("pad_token_id", otherwise);
  const int64_t counted = row < 0 ? row + rows : row;
  return counted >= 0 && counted < rows ? counted : -1;
}

void check_heads(const ModelConfig& config, int64_t width, int64_t heads) {
  if (width % heads == 0) return;
  throw DataError({.what = config.name() + ": a hidden size of " + std::to_string(width) +
                           " cannot be divided among " + std::to_string(heads) +
                           " attention heads"});
}

}  // namespace accelerate::transformers
