// The tokens of a batch of texts without its padding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accelerate::transformers {

// Where the tokens of texts [batch, positions] are when they lie row by row, those of padding left
// out if that is worth it: layers that look at each token by itself then have less to do.
//
// On the CPU random numbers are drawn for all positions all the same, in the order of
// torch::dropout: with the same seed training gives the same numbers as if nothing was left out.
class TextPacking {
 public:
  // `padding` [batch, positions] of 0 and 1, or undefined. Padding stays where a text begins with
  // it, and on GPUs, whose values nobody reads here.
  TextPacking(int64_t batch, int64_t positions, const at::Tensor& padding);

  // [batch, positions, width] <-> [tokens, width]; what was left out becomes zero.
  at::Tensor pack(const at::Tensor& x) const;
  at::Tensor unpack(const at::Tensor& x) const;
  // The first token of each text, of [tokens, width].
  at::Tensor firsts(const at::Tensor& x) const;

  // Dropout of [tokens, width], and of what firsts() has given.
  at::Tensor drop_out(const at::Tensor& x, double probability) const;
  at::Tensor drop_out_firsts(const at::Tensor& x, double probability) const;
  // Dropout of the attention of the first tokens, [batch, heads, 1, positions].
  at::Tensor drop_out_attention(const at::Tensor& weights, double probability) const;

 private:
  int64_t batch_, positions_;
  at::Tensor rows_{};    // of the tokens among all positions; undefined: all of them
  at::Tensor firsts_{};  // of the first ones among the tokens
};

}  // namespace accelerate::transformers
