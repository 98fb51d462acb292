#include "accelerate/transformers/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::transformers {
namespace {

// `kept` with room for `length` positions.
at::Tensor with_room(const at::Tensor& kept, int64_t used, int64_t length, int64_t first_room,
                     const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  if (kept.defined()) {
    const bool fits = kept.dim() == like.dim() && kept.size(0) == sizes[0] &&
                      kept.size(1) == sizes[1] && kept.size(3) == sizes[3] &&
                      kept.scalar_type() == like.scalar_type();
    if (!fits) {
      throw UsageError({.what = "the keys and values of these texts do not fit those in the cache",
                        .where = "KeyValueCache",
                        .hint = "begin each batch of texts with a new cache"});
    }
    if (kept.size(2) >= length) return kept;
  }
  sizes[2] = std::max({first_room, length, kept.defined() ? 2 * kept.size(2) : int64_t{0}});
  at::Tensor larger = at::empty(sizes, like.options());
  if (used > 0) larger.slice(2, 0, used).copy_(kept.slice(2, 0, used));
  return larger;
}

}  // namespace

KeyValueCache::Layer& KeyValueCache::at(size_t layer) {
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  return layers_[layer];
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(size_t layer, const at::Tensor& key,
                                                        const at::Tensor& value) {
  Layer& own = at(layer);
  const int64_t length = own.length + key.size(2);
  own.key = with_room(own.key, own.length, length, room_, key);
  own.value = with_room(own.value, own.length, length, room_, value);
  own.key.slice(2, own.length, length).copy_(key);
  own.value.slice(2, own.length, length).copy_(value);
  own.length = length;
  return {own.key.slice(2, 0, length), own.value.slice(2, 0, length)};
}

int64_t KeyValueCache::length() const { return layers_.empty() ? 0 : layers_.back().length; }

const std::pair<at::Tensor, at::Tensor>& KeyValueCache::cross(size_t layer) {
  return at(layer).cross;
}

void KeyValueCache::set_cross(size_t layer, const at::Tensor& key, const at::Tensor& value) {
  at(layer).cross = {key, value};
}

}  // namespace accelerate::transformers
