#include "transformers/models/t5_stack.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "transformers/models/config_document.h"
#include "transformers/models/decoding.h"

namespace accelerate::transformers {
namespace {

// Float16 ends at 65,504: where a sum has left its range, all are brought a little below its end.
at::Tensor within_range(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return x;
  constexpr double kMost = 65504.0;
  const at::Tensor limit = kMost - 1000.0 * at::isinf(x).any().to(x.scalar_type());
  return at::min(at::max(x, -limit), limit);
}

// In half precision what follows a norm is in it too, though sums may be float32: a feed-forward
// layer that is kept in float32 makes them so.
at::Tensor normed_by(const RmsNorm& norm, const at::Tensor& x) {
  const at::ScalarType type = norm->weight.scalar_type();
  const at::Tensor normed = norm->forward(x);
  return type == at::kHalf || type == at::kBFloat16 ? normed.to(type) : normed;
}

double least_of(at::ScalarType type) {
  if (type == at::kHalf) return std::numeric_limits<at::Half>::lowest();
  if (type == at::kBFloat16) return std::numeric_limits<at::BFloat16>::lowest();
  return std::numeric_limits<float>::lowest();
}

}  // namespace

T5Options T5Options::from_config(const ModelConfig& config) {
  T5Options options{model_config::t5_sizes(document_of(config))};
  options.dropout = config.probability("dropout_rate", 0.1);
  options.eps = config.non_negative("layer_norm_epsilon", 1e-6);
  options.file = config.source_of("feed_forward_proj");
  const std::string feed = config.text("feed_forward_proj", "relu");
  options.activation = options.is_gated ? feed.substr(feed.find('-') + 1) : feed;
  if (feed == "gated-gelu") options.activation = "gelu_new";
  return options;
}

at::Tensor relative_position_buckets(int64_t first, int64_t queries, int64_t keys,
                                     bool bidirectional, int64_t buckets, int64_t most_distance,
                                     c10::Device device) {
  const auto integers = at::TensorOptions(device).dtype(at::kLong);
  const at::Tensor own = at::arange(first, first + queries, integers).unsqueeze(1);
  const at::Tensor relative = at::arange(keys, integers).unsqueeze(0) - own;
  at::Tensor distance = bidirectional ? relative.abs() : at::clamp_min(-relative, 0);
  if (bidirectional) buckets /= 2;
  const int64_t exact = buckets / 2;
  const double spread = std::log(static_cast<double>(most_distance) / static_cast<double>(exact));
  const at::Tensor far = at::log(at::clamp_min(distance, 1).to(at::kFloat) / exact) / spread *
                         static_cast<double>(buckets - exact);
  const at::Tensor shared = at::clamp_max(far.to(at::kLong) + exact, buckets - 1);
  at::Tensor found = at::where(distance < exact, distance, shared);
  if (bidirectional) found = found + (relative > 0).to(at::kLong) * buckets;
  return found;
}

T5AttentionImpl::T5AttentionImpl(const T5Options& options, bool with_bias)
    : heads(options.heads),
      q(register_module("q", Linear(options.width, heads * options.head_width, false))),
      k(register_module("k", Linear(options.width, heads * options.head_width, false))),
      v(register_module("v", Linear(options.width, heads * options.head_width, false))),
      o(register_module("o", Linear(heads * options.head_width, options.width, false))) {
  if (with_bias) {
    relative_attention_bias =
        register_module("relative_attention_bias", Embedding(options.buckets, heads));
  }
}

at::Tensor T5AttentionImpl::forward(const at::Tensor& x, const at::Tensor& key,
                                    const at::Tensor& value, const at::Tensor& mask,
                                    double dropout) const {
  const at::Tensor query = split_heads(q->forward(x), heads);
  return o->forward(
      merge_heads(attend(query, key, value, {.mask = mask, .dropout = dropout, .scale = 1.0})));
}

T5DenseImpl::T5DenseImpl(const T5Options& options)
    : act(activation(options.activation, "feed_forward_proj", options.file)),
      dropped(options.dropout) {
  const auto up = [&](const char* name) {
    return register_module(name, Linear(options.width, options.inner_width, false));
  };
  if (options.is_gated) {
    wi_0 = up("wi_0");
    wi_1 = up("wi_1");
  } else {
    wi = up("wi");
  }
  wo = register_module("wo", Linear(options.inner_width, options.width, false));
}

at::Tensor T5DenseImpl::forward(const at::Tensor& x) const {
  const at::Tensor inner =
      wi.is_empty() ? act(wi_0->forward(x)) * wi_1->forward(x) : act(wi->forward(x));
  const at::Tensor kept = drop_out(inner, dropped, is_training());
  return wo->forward(at::autocast::is_autocast_enabled(x.device().type())
                         ? kept
                         : kept.to(wo->weight.scalar_type()));
}

T5SublayerImpl::T5SublayerImpl(const T5Options& options)
    : layer_norm(register_module("layer_norm", RmsNorm(options.width, options.eps))) {}

T5BlockImpl::T5BlockImpl(const T5Options& options, bool decoder, bool with_bias)
    : layer(register_module("layer", torch::nn::ModuleList())) {
  const auto sublayer = [&] {
    T5Sublayer made(options);
    layer->push_back(made);
    return made;
  };
  self = sublayer();
  self->attention = self->register_module("SelfAttention", T5Attention(options, with_bias));
  if (decoder) {
    cross = sublayer();
    cross->attention = cross->register_module("EncDecAttention", T5Attention(options, false));
  }
  feed_forward = sublayer();
  feed_forward->dense = feed_forward->register_module("DenseReluDense", T5Dense(options));
}

T5StackImpl::T5StackImpl(const T5Options& options, bool decoder)
    : decoder_(decoder),
      dropout_(options.dropout),
      buckets_(options.buckets),
      most_distance_(options.most_distance),
      block_(register_module("block", torch::nn::ModuleList())),
      final_layer_norm_(nullptr) {
  const int64_t count = decoder ? options.decoder_layers : options.encoder_layers;
  for (int64_t i = 0; i < count; ++i) {
    blocks_.emplace_back(options, decoder, i == 0);
    block_->push_back(blocks_.back());
  }
  final_layer_norm_ = register_module("final_layer_norm", RmsNorm(options.width, options.eps));
}

// What is added to all scores of self-attention: by distance, and nothing but that where a position
// may look, next to infinitely little elsewhere.
at::Tensor T5StackImpl::position_bias(int64_t past, const at::Tensor& x,
                                      const at::Tensor& mask) const {
  const int64_t count = x.size(1);
  const at::Tensor buckets = relative_position_buckets(past, count, past + count, !decoder_,
                                                       buckets_, most_distance_, x.device());
  const at::Tensor bias = blocks_.front()
                              ->self->attention->relative_attention_bias->forward(buckets)
                              .permute({2, 0, 1})
                              .unsqueeze(0);
  AttendOptions allowed;
  if (decoder_) {
    allowed = causal_attention(count, past, mask, x.device());
    if (allowed.causal) allowed.mask = causal_mask(count, count, {}, x.device());
  } else {
    allowed.mask = padding_mask(mask);
  }
  if (!allowed.mask.defined()) return bias;
  return at::where(allowed.mask, bias, at::full({}, least_of(bias.scalar_type()), bias.options()));
}

at::Tensor T5StackImpl::cross_attend(const T5Attention& attention, const at::Tensor& x,
                                     const Call& call, const at::Tensor& mask, size_t layer) const {
  at::Tensor key;
  at::Tensor value;
  if (call.cache != nullptr) std::tie(key, value) = call.cache->cross(layer);
  if (!key.defined()) {
    key = attention->keys(call.encoded);
    value = attention->values(call.encoded);
    if (call.cache != nullptr) call.cache->set_cross(layer, key, value);
  }
  return attention->forward(x, key, value, mask, is_training() ? dropout_ : 0.0);
}

at::Tensor T5StackImpl::forward(at::Tensor x, const Call& call) const {
  const int64_t past = call.cache != nullptr ? call.cache->length() : 0;
  const double attention_dropout = is_training() ? dropout_ : 0.0;
  const auto dropped = [&](const at::Tensor& branch) {
    return drop_out(branch, dropout_, is_training());
  };
  const at::Tensor bias = position_bias(past, x, call.mask);
  const at::Tensor encoded_mask = padding_mask(call.encoded_mask);
  x = dropped(x);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (call.hidden_states != nullptr) call.hidden_states->push_back(x);
    const T5Block& block = blocks_[i];
    const T5Attention& attention = block->self->attention;
    const at::Tensor normed = normed_by(block->self->layer_norm, x);
    at::Tensor key = attention->keys(normed);
    at::Tensor value = attention->values(normed);
    if (call.cache != nullptr) std::tie(key, value) = call.cache->append(i, key, value);
    x = within_range(x + dropped(attention->forward(normed, key, value, bias, attention_dropout)));
    if (decoder_) {
      const at::Tensor query = normed_by(block->cross->layer_norm, x);
      x = within_range(
          x + dropped(cross_attend(block->cross->attention, query, call, encoded_mask, i)));
    }
    const T5Sublayer& feed = block->feed_forward;
    x = within_range(x + dropped(feed->dense->forward(normed_by(feed->layer_norm, x))));
  }
  x = dropped(normed_by(final_layer_norm_, x));
  if (call.hidden_states != nullptr) call.hidden_states->push_back(x);
  return x;
}

}  // namespace accelerate::transformers
