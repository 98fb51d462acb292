// What a loader yields: the stacked samples and where they stand in the pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "accelerate/export.h"

namespace accelerate {

// A sample with its label, or a batch of such samples stacked along a new first dimension.
struct Sample {
  at::Tensor data{};
  at::Tensor target{};
};

// A batch of samples that are one tensor each.
struct UnlabelledBatch {
  at::Tensor data{};
};

// Where a batch stands. A batch carries this itself: there is no need to ask the loader.
struct ACCELERATE_EXPORT BatchInfo {
  int64_t epoch = 0;     // the pass it belongs to, as DataLoader::epoch() was when it began
  int64_t index = 0;     // 0, 1, ... among the batches of this rank in this pass
  bool is_last = false;  // the last one of this rank in this pass
  int64_t size = 0;      // samples in the batch
  int64_t valid = 0;     // the leading ones that are real; the rest repeat samples of the pass's
                         // beginning, only to even out the last batch over the ranks

  // A bool tensor of `size` on the CPU, true for the real samples.
  at::Tensor valid_mask() const;
};

// A batch is what the samples were collated to (with the fields `data` and `target`, of a pair or
// a map or a struct of the user), each tensor with the batch dimension in front, and knows its
// position. One of pairs or tuples can be unpacked: auto& [images, labels] = batch. It owns its
// tensors: keeping a copy after the loop moved on is safe.
template <class Value>
class Batch : public Value {
 public:
  Batch() = default;
  Batch(Value value, BatchInfo info) : Value(std::move(value)), info_(info) {}

  const BatchInfo& info() const { return info_; }

 private:
  BatchInfo info_{};
};

}  // namespace accelerate

// Structured bindings for a batch of pairs, tuples or arrays.
template <class Value>
requires requires { std::tuple_size<Value>::value; }
struct std::tuple_size<accelerate::Batch<Value>> : std::tuple_size<Value> {};
template <size_t index, class Value>
requires requires { std::tuple_size<Value>::value; }
struct std::tuple_element<index, accelerate::Batch<Value>> : std::tuple_element<index, Value> {};
