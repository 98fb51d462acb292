// The layers of BERT and its relatives: attention and two matrices, each followed by a norm of the
// sum with what went past.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "transformers/models/layers.h"
#include "transformers/models/text_packing.h"

namespace accelerate::transformers {

// What one of them is made of; models register the parts under their own names.
struct EncoderBlock {
  int64_t heads = 1;
  // Of the attention, of what it gives, and at the end.
  double attention_dropout = 0.0, attended_dropout = 0.0, dropout = 0.0;
  Activation act{};
  Linear query{nullptr}, key{nullptr}, value{nullptr}, attended{nullptr};
  LayerNorm attended_norm{nullptr};
  Linear inner{nullptr}, outer{nullptr};
  LayerNorm norm{nullptr};
};

// New layers of these sizes, in the order of their names above; the rest is left to be set.
EncoderBlock make_encoder_block(int64_t width, int64_t inner_width, double eps);

class EncoderStack {
 public:
  void add(EncoderBlock block) { blocks_.push_back(std::move(block)); }

  struct Options {
    at::Tensor padding{};  // [batch, positions] of 0 and 1, or undefined
    bool causal = false;
    bool training = false;
    // Unless it is null, takes what goes into each layer and what comes out of the last.
    std::vector<at::Tensor>* hidden_states = nullptr;
  };
  // [batch, positions, width] of all positions, of x of that shape.
  at::Tensor all(at::Tensor x, const Options& options) const;
  // [batch, width] of the first position of each text: what all() gives for it, without computing
  // what that does not depend on. Not for causal ones, and no hidden states.
  at::Tensor first(const at::Tensor& x, const Options& options) const;

 private:
  std::vector<EncoderBlock> blocks_{};
};

}  // namespace accelerate::transformers
