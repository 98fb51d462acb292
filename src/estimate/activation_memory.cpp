#include "estimate/activation_memory.h"

#include <limits>

#include "accelerate/errors.h"

namespace accelerate::estimate {
namespace {

// Figures of this size have no meaning, and the products below stay inside of a double's range.
constexpr double kMostActivationBytes = 1e18;

double attention_bytes(const BlockDimensions& block, double bytes_each, const BatchShape& shape) {
  const double kept = static_cast<double>(block.hidden) +
                      2 * static_cast<double>(block.query_width) +
                      2 * static_cast<double>(block.key_width);
  const double masks = block.has_dropout ? static_cast<double>(block.hidden) : 0;
  double bytes = kept * bytes_each + masks;
  if (shape.attention == Attention::kPlain) {
    const double scores = static_cast<double>(block.heads) * static_cast<double>(shape.sequence);
    bytes += scores * (block.has_dropout ? 2 * bytes_each + 1 : bytes_each);
  }
  return bytes + static_cast<double>(block.hidden) * bytes_each;  // its norm
}

double feed_forward_bytes(const BlockDimensions& block, double bytes_each) {
  const double inner = static_cast<double>(block.inner) * (block.is_gated ? 4 : 2);
  const double hidden = static_cast<double>(block.hidden);
  return (hidden + inner) * bytes_each + (block.has_dropout ? hidden : 0) + hidden * bytes_each;
}

}  // namespace

uint64_t activation_bytes(const ModelLayout& model, Dtype dtype, const BatchShape& shape) {
  const double bytes_each = dtype == Dtype::kFloat32 ? 4 : 2;
  double bytes_per_token = 0;
  for (const BlockDimensions& block : model.blocks) {
    double layer = attention_bytes(block, bytes_each, shape);
    if (block.attends_encoder) layer += attention_bytes(block, bytes_each, shape);
    layer += feed_forward_bytes(block, bytes_each);
    bytes_per_token += static_cast<double>(block.layers) * layer;
    bytes_per_token += static_cast<double>(block.hidden) * bytes_each;
  }
  bytes_per_token += static_cast<double>(model.logits_per_token) * (bytes_each + 4);
  const double bytes =
      bytes_per_token * static_cast<double>(shape.batch) * static_cast<double>(shape.sequence);
  if (bytes > kMostActivationBytes) {
    throw UsageError({.what = "the activations of such a batch would not fit on any machine",
                      .hint = "--batch and --sequence are those of one rank"});
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace accelerate::estimate
