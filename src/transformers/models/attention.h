// Attention and what of the text each position may see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accelerate::transformers {

// [batch, positions, heads * width] <-> [batch, heads, positions, width].
at::Tensor split_heads(const at::Tensor& x, int64_t heads);
at::Tensor merge_heads(const at::Tensor& x);

// What a query may look at: true, in a shape that broadcasts to [batch, 1, queries, keys].
// Undefined: at everything. Nothing here reads the values of a tensor on a GPU.
//
// All but the padding. `mask` [batch, keys] of 0 and 1, or undefined. Undefined if there is none.
at::Tensor padding_mask(const at::Tensor& mask);
// The last `queries` of `keys` positions look at themselves and what is before them, but for the
// padding. A position of padding sees itself, so that no row is without anything to see.
at::Tensor causal_mask(int64_t queries, int64_t keys, const at::Tensor& mask, c10::Device device);

struct AttendOptions {
  at::Tensor mask{};     // of the above, or numbers to add to the scores
  bool causal = false;   // without a mask: what causal_mask() says, by the faster way
  double dropout = 0.0;  // 0 unless training
  double scale = 0.0;    // 0: one over the square root of the width
};

// scaled_dot_product_attention of query [batch, heads, queries, width] with keys and values
// [batch, key heads, keys, width]; where there are fewer key heads each serves a group of query
// heads.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttendOptions& options);

}  // namespace accelerate::transformers
