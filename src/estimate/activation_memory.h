// The memory of activations: what forward keeps for backward.
#pragma once

#include <cstdint>

#include "estimate/architectures.h"
#include "estimate/training_memory.h"

namespace accelerate::estimate {

enum class Attention {
  kFused,  // scaled_dot_product_attention on a kernel that does not keep its scores
  kPlain,  // a score for every pair of tokens is kept
};

struct BatchShape {
  uint64_t batch = 1;     // sequences on each rank
  uint64_t sequence = 1;  // tokens of each
  Attention attention = Attention::kFused;
};

// An estimate of the bytes at the end of forward, on each rank, without recomputation: of each
// token and block, with h its width, q and k those of queries and keys, f of the feed-forward
// layer,
//
//   attention     h + 2q + 2k     its input, queries, keys, values, and the input of the projection
//   feed-forward  h + 2f          its input, before and after the activation; 4f where it is gated
//   norms         2h
//
// numbers of the type that is computed in, a byte for each of the 2h numbers under dropout, and
// with plain attention for each head and token scores before and after dropout and the mask
// between. The second attention of a decoder counts as a first. To that the embeddings (h) and the
// logits, which the loss keeps in float32 too. T5 runs encoder and decoder on `sequence` tokens
// each.
//
// Throws UsageError for more tokens than any machine holds.
uint64_t activation_bytes(const ModelLayout& model, Dtype dtype, const BatchShape& shape);

}  // namespace accelerate::estimate
