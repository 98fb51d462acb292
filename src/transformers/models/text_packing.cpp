#include "transformers/models/text_packing.h"

#include <ATen/ATen.h>

namespace accelerate::transformers {
namespace {

// Below this share of tokens moving them costs less than it saves.
constexpr double kWorthIt = 0.9;

// x by the factors of dropout that `part` takes out of those for a tensor of `sizes`.
template <class Part>
at::Tensor drop_part(const at::Tensor& x, at::IntArrayRef sizes, double probability, Part part) {
  if (probability <= 0) return x;
  if (probability >= 1) return x * 0;  // with a gradient, of zeros
  if (!x.is_cpu()) return at::dropout(x, probability, true);
  const at::Tensor kept = at::empty(sizes, x.options()).bernoulli_(1 - probability);
  return x * part(kept).div(1 - probability);
}

}  // namespace

TextPacking::TextPacking(int64_t batch, int64_t positions, const at::Tensor& padding)
    : batch_(batch), positions_(positions) {
  if (!padding.defined() || !padding.is_cpu()) return;
  const at::Tensor tokens = padding.to(at::kBool);
  const at::Tensor lengths = tokens.sum(1);
  const auto all = static_cast<double>(tokens.numel());
  if (static_cast<double>(lengths.sum().item<int64_t>()) > kWorthIt * all) return;
  if (!tokens.select(1, 0).all().item<bool>()) return;
  rows_ = tokens.flatten().nonzero().squeeze(1);
  firsts_ = lengths.cumsum(0) - lengths;
}

at::Tensor TextPacking::pack(const at::Tensor& x) const {
  const at::Tensor flat = x.flatten(0, 1);
  return rows_.defined() ? flat.index_select(0, rows_) : flat;
}

at::Tensor TextPacking::unpack(const at::Tensor& x) const {
  const at::Tensor flat =
      rows_.defined()
          ? at::zeros({batch_ * positions_, x.size(1)}, x.options()).index_copy(0, rows_, x)
          : x;
  return flat.view({batch_, positions_, x.size(1)});
}

at::Tensor TextPacking::firsts(const at::Tensor& x) const {
  if (firsts_.defined()) return x.index_select(0, firsts_);
  return x.view({batch_, positions_, x.size(1)}).select(1, 0);
}

at::Tensor TextPacking::drop_out(const at::Tensor& x, double probability) const {
  return drop_part(x, {batch_ * positions_, x.size(1)}, probability, [&](const at::Tensor& kept) {
    return rows_.defined() ? kept.index_select(0, rows_) : kept;
  });
}

at::Tensor TextPacking::drop_out_firsts(const at::Tensor& x, double probability) const {
  return drop_part(x, {batch_, positions_, x.size(1)}, probability,
                   [](const at::Tensor& kept) { return kept.select(1, 0); });
}

at::Tensor TextPacking::drop_out_attention(const at::Tensor& weights, double probability) const {
  return drop_part(weights, {batch_, weights.size(1), positions_, positions_}, probability,
                   [](const at::Tensor& kept) { return kept.slice(2, 0, 1); });
}

}  // namespace accelerate::transformers
