// What attention has seen so far, kept while a text is continued token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "accelerate/export.h"

namespace accelerate::transformers {

// Filled by the models: give the same one to each forward() of a text, and only the new tokens.
// Not for training. Memory grows by doubling: appending one token copies that token alone.
class ACCELERATE_EXPORT KeyValueCache {
 public:
  // Reserves memory for this many positions at the first append.
  explicit KeyValueCache(int64_t room = 64) : room_(room) {}

  // Appends keys and values [batch, heads, new positions, width] of a layer; returns all of them so
  // far, as views that the next call for this layer may overwrite. Throws UsageError if they do not
  // fit those of before: another batch, or another model.
  std::pair<at::Tensor, at::Tensor> append(size_t layer, const at::Tensor& key,
                                           const at::Tensor& value);
  // Positions of the text that all layers have seen: the place of the next token.
  int64_t length() const;

  // Keys and values of the encoder's output, which do not change; undefined until they are set.
  const std::pair<at::Tensor, at::Tensor>& cross(size_t layer);
  void set_cross(size_t layer, const at::Tensor& key, const at::Tensor& value);

 private:
  struct Layer {
    at::Tensor key{}, value{};  // with room to grow along dimension 2
    int64_t length = 0;
    std::pair<at::Tensor, at::Tensor> cross{};
  };
  Layer& at(size_t layer);

  int64_t room_;
  std::vector<Layer> layers_{};
};

}  // namespace accelerate::transformers
