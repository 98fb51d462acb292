#include "transformers/models/attention.h"

#include <ATen/ATen.h>

#include <optional>

namespace accelerate::transformers {

at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

at::Tensor padding_mask(const at::Tensor& mask) {
  if (!mask.defined()) return {};
  const at::Tensor seen = mask.to(at::kBool);
  // Attention without a mask is faster; on a GPU finding out would cost more.
  if (seen.is_cpu() && seen.all().item<bool>()) return {};
  return seen.unsqueeze(1).unsqueeze(1);
}

at::Tensor causal_mask(int64_t queries, int64_t keys, const at::Tensor& mask, c10::Device device) {
  const at::Tensor places = at::arange(keys, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor own = places.slice(0, keys - queries).unsqueeze(1);
  const at::Tensor causal = places.unsqueeze(0) <= own;
  if (!mask.defined()) return causal.unsqueeze(0).unsqueeze(0);
  const at::Tensor itself = places.unsqueeze(0) == own;
  const at::Tensor seen = padding_mask(mask);
  if (!seen.defined()) return causal.unsqueeze(0).unsqueeze(0);
  return (causal & seen) | itself;
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttendOptions& options) {
  const bool grouped = key.size(1) != query.size(1);
  const bool causal = options.causal && !options.mask.defined() && query.size(2) > 1;
  return at::scaled_dot_product_attention(
      query, key, value,
      options.mask.defined() ? std::optional<at::Tensor>(options.mask) : std::nullopt,
      options.dropout, causal,
      options.scale != 0 ? std::optional<double>(options.scale) : std::nullopt, grouped);
}

}  // namespace accelerate::transformers
