#include "transformers/models/encoder_block.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "transformers/models/attention.h"

namespace accelerate::transformers {
namespace {

// What comes after attention; `drop` is dropout of such values with a probability.
template <class Drop>
at::Tensor finish(const EncoderBlock& block, const at::Tensor& seen, const at::Tensor& past,
                  Drop drop) {
  const at::Tensor attended = block.attended_norm->forward(
      drop(block.attended->forward(seen), block.attended_dropout) + past);
  const at::Tensor fed = block.outer->forward(block.act(block.inner->forward(attended)));
  return block.norm->forward(drop(fed, block.dropout) + attended);
}

at::Tensor run_all(const EncoderBlock& block, const at::Tensor& x, const at::Tensor& mask,
                   bool training) {
  const at::Tensor seen = attend(split_heads(block.query->forward(x), block.heads),
                                 split_heads(block.key->forward(x), block.heads),
                                 split_heads(block.value->forward(x), block.heads),
                                 {.mask = mask, .dropout = training ? block.attention_dropout : 0});
  return finish(block, merge_heads(seen), x, [&](const at::Tensor& values, double probability) {
    return drop_out(values, probability, training);
  });
}

at::Tensor run_packed(const EncoderBlock& block, const at::Tensor& x, const TextPacking& packing,
                      const at::Tensor& mask, bool training) {
  const auto heads_of = [&](const Linear& linear) {
    return split_heads(packing.unpack(linear->forward(x)), block.heads);
  };
  const at::Tensor query = heads_of(block.query), key = heads_of(block.key);
  const at::Tensor seen = attend(query, key, heads_of(block.value),
                                 {.mask = mask, .dropout = training ? block.attention_dropout : 0});
  return finish(block, packing.pack(merge_heads(seen)), x,
                [&](const at::Tensor& values, double probability) {
                  return training ? packing.drop_out(values, probability) : values;
                });
}

// Attention of the first position of each text alone. A text of nothing but padding sees nothing,
// as with scaled_dot_product_attention.
at::Tensor attend_first(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const TextPacking& packing, const at::Tensor& mask, double dropout) {
  if (dropout <= 0) return attend(query, key, value, {.mask = mask});
  at::Tensor scores =
      query.mul(1.0 / std::sqrt(static_cast<double>(query.size(3)))).matmul(key.transpose(2, 3));
  if (mask.defined()) {
    scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  // In float32 by name: under autocast on a GPU the operator would answer in it by itself, and its
  // gradient then finds a type that it does not expect.
  const at::ScalarType dtype = scores.scalar_type();
  const at::Tensor weights =
      at::_safe_softmax(dtype == at::kDouble ? scores : scores.to(at::kFloat), -1).to(dtype);
  return packing.drop_out_attention(weights, dropout).matmul(value);
}

at::Tensor run_first(const EncoderBlock& block, const at::Tensor& x, const TextPacking& packing,
                     const at::Tensor& mask, bool training) {
  const at::Tensor firsts = packing.firsts(x);
  const at::Tensor query = block.query->forward(firsts).unflatten(1, {block.heads, 1, -1});
  const at::Tensor key = split_heads(packing.unpack(block.key->forward(x)), block.heads);
  const at::Tensor value = split_heads(packing.unpack(block.value->forward(x)), block.heads);
  const at::Tensor seen =
      attend_first(query, key, value, packing, mask, training ? block.attention_dropout : 0.0);
  return finish(block, seen.flatten(1), firsts, [&](const at::Tensor& values, double probability) {
    return training ? packing.drop_out_firsts(values, probability) : values;
  });
}

}  // namespace

EncoderBlock make_encoder_block(int64_t width, int64_t inner_width, double eps) {
  EncoderBlock block;
  block.query = Linear(width, width);
  block.key = Linear(width, width);
  block.value = Linear(width, width);
  block.attended = Linear(width, width);
  block.attended_norm = LayerNorm(width, eps);
  block.inner = Linear(width, inner_width);
  block.outer = Linear(inner_width, width);
  block.norm = LayerNorm(width, eps);
  return block;
}

at::Tensor EncoderStack::all(at::Tensor x, const Options& options) const {
  const at::Tensor mask = options.causal
                              ? causal_mask(x.size(1), x.size(1), options.padding, x.device())
                              : padding_mask(options.padding);
  for (const EncoderBlock& block : blocks_) {
    if (options.hidden_states != nullptr) options.hidden_states->push_back(x);
    x = run_all(block, x, mask, options.training);
  }
  if (options.hidden_states != nullptr) options.hidden_states->push_back(x);
  return x;
}

at::Tensor EncoderStack::first(const at::Tensor& x, const Options& options) const {
  const TextPacking packing(x.size(0), x.size(1), options.padding);
  const at::Tensor mask = padding_mask(options.padding);
  at::Tensor tokens = packing.pack(x);
  for (size_t i = 0; i + 1 < blocks_.size(); ++i) {
    tokens = run_packed(blocks_[i], tokens, packing, mask, options.training);
  }
  return run_first(blocks_.back(), tokens, packing, mask, options.training);
}

}  // namespace accelerate::transformers
