#include "transformers/models/text_inputs.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "transformers/models/losses.h"

namespace accelerate::transformers {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

[[noreturn]] void refuse_type(const at::Tensor& tensor, const char* name) {
  throw UsageError({.what = std::string(name) + " has numbers of the type " +
                            c10::toString(tensor.scalar_type()) + ", not whole ones",
                    .hint = std::string(name) + ".to(torch::kInt64)"});
}

void check_shape(const at::Tensor& tensor, const at::Tensor& ids, const char* name,
                 const char* ids_name, int64_t past = 0) {
  if (!tensor.defined()) return;
  const int64_t all = ids.size(1) + past;
  if (tensor.dim() == 2 && tensor.size(0) == ids.size(0) && tensor.size(1) == all) return;
  const std::string before =
      past == 0 ? "" : " after " + std::to_string(past) + " positions in the cache";
  throw UsageError({.what = std::string(name) + " has the shape " + shape_of(tensor) + ", " +
                            ids_name + " has " + shape_of(ids) + before,
                    .hint = "give one number for each position of each text"});
}

// Whether the numbers are at hand, or are worth waiting for. Tensors of "meta" have none.
bool can_be_read(const at::Tensor& tensor) {
  return tensor.is_cpu() || (!tensor.is_meta() && environment_flag("ACCELERATE_DEBUG_MODE"));
}

// A number that is neither in [0, count) nor `except`; nothing too where it cannot be read. One
// pass over memory that is small beside all else.
std::optional<int64_t> outside(const at::Tensor& tensor, int64_t count, int64_t except = 0) {
  if (tensor.numel() == 0 || !can_be_read(tensor)) return std::nullopt;
  const at::Tensor numbers = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* begin = numbers.data_ptr<int64_t>();
  const auto* end = begin + numbers.numel();
  const auto is_wrong = [&](int64_t number) {
    return (number < 0 || number >= count) && number != except;
  };
  const auto* found = std::find_if(begin, end, is_wrong);
  return found == end ? std::nullopt : std::optional(*found);
}

// `of_what`: "tokens".
void check_rows(const at::Tensor& tensor, int64_t count, const char* name, const char* of_what,
                const char* hint) {
  if (!tensor.defined()) return;
  const at::ScalarType type = tensor.scalar_type();
  if (type != at::kLong && type != at::kInt) refuse_type(tensor, name);
  const std::optional<int64_t> wrong = outside(tensor, count);
  if (!wrong) return;
  const std::string range = count == kNoTable
                                ? ", which is negative"
                                : "; the model has " + std::to_string(count) + " " + of_what +
                                      ", from 0 to " + std::to_string(count - 1);
  throw UsageError(
      {.what = std::string(name) + " has " + std::to_string(*wrong) + range, .hint = hint});
}

}  // namespace

void check_text(const ModelInputs& inputs, const TextLimits& limits, const std::string& model,
                int64_t past) {
  const at::Tensor& ids = inputs.input_ids;
  const std::string name = limits.ids;
  if (!ids.defined()) throw UsageError({.what = model + " was called without " + name});
  if (ids.dim() != 2) {
    throw UsageError({.what = name + " has the shape " + shape_of(ids) + ", not [batch, positions]",
                      .hint = "a single text is a batch of one: unsqueeze(0)"});
  }
  if (ids.numel() == 0) throw UsageError({.what = name + " has no tokens"});
  check_shape(inputs.attention_mask, ids, limits.mask, limits.ids, past);
  check_shape(inputs.token_type_ids, ids, "token_type_ids", limits.ids);
  const at::Tensor& places = inputs.position_ids;
  const bool of_one_text = places.defined() && places.dim() == 2 && places.size(0) == 1;
  if (places.defined()) {
    check_shape(places, of_one_text ? ids.slice(0, 0, 1) : ids, "position_ids", limits.ids);
  }
  check_rows(ids, limits.vocabulary, limits.ids, "tokens",
             "the tokenizer must be that of the model; after tokens were added to it: "
             "model->resize_token_embeddings()");
  check_rows(inputs.token_type_ids, limits.token_types, "token_type_ids", "types",
             "leave them out, or use the tokenizer of the model");
  check_rows(places, limits.positions, "position_ids", "positions",
             "truncate texts when you tokenize");
  const int64_t end = ids.size(1) + past;
  if (places.defined() || end <= limits.positions) return;
  throw UsageError({.what = "texts of " + std::to_string(end) + " positions for " + model +
                            ", which has " + std::to_string(limits.positions),
                    .hint = "truncate them when you tokenize"});
}

void check_labels(const at::Tensor& labels, int64_t rows, int64_t classes) {
  if (!c10::isIntegralType(labels.scalar_type(), /*includeBool=*/true))
    refuse_type(labels, "labels");
  if (labels.numel() != rows) {
    throw UsageError({.what = "labels has the shape " + shape_of(labels) + ", but there are " +
                              std::to_string(rows) + " predictions",
                      .hint = "give one label for each"});
  }
  const std::optional<int64_t> wrong = outside(labels, classes, kNoLabel);
  if (!wrong) return;
  throw UsageError(
      {.what = "labels has " + std::to_string(*wrong) + "; the model has " +
               std::to_string(classes) + " classes, from 0 to " + std::to_string(classes - 1) +
               ", and " + std::to_string(kNoLabel) + " for what does not count",
       .hint = "a classifier has as many classes as num_labels says, a language model as its "
               "vocabulary"});
}

int64_t padding_row(const ModelConfig& config, int64_t otherwise, int64_t rows) {
  if (config.is_null("pad_token_id")) return -1;
  const int64_t row = config.integer("pad_token_id", otherwise);
  const int64_t counted = row < 0 ? row + rows : row;
  return counted >= 0 && counted < rows ? counted : -1;
}

}  // namespace accelerate::transformers
