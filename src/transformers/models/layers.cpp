#include "transformers/models/layers.h"

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "accelerate/errors.h"
#include "transformers/models/allocation.h"

namespace accelerate::transformers {

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias)
    : weight(register_parameter("weight", new_parameter({out, in}))) {
  if (with_bias) bias = register_parameter("bias", new_parameter({out}));
}

at::Tensor LinearImpl::forward(const at::Tensor& x) const { return at::linear(x, weight, bias); }

Conv1dImpl::Conv1dImpl(int64_t in, int64_t out)
    : weight(register_parameter("weight", new_parameter({in, out}))),
      bias(register_parameter("bias", new_parameter({out}))) {}

at::Tensor Conv1dImpl::forward(const at::Tensor& x) const {
  return at::linear(x, weight.t(), bias);
}

EmbeddingImpl::EmbeddingImpl(int64_t count, int64_t width, int64_t padding)
    : weight(register_parameter("weight", new_parameter({count, width}))), padding_(padding) {}

at::Tensor EmbeddingImpl::forward(const at::Tensor& ids) const {
  return at::embedding(weight, ids, padding_);
}

LayerNormImpl::LayerNormImpl(int64_t width, double own_eps)
    : weight(register_parameter("weight", new_parameter({width}))),
      bias(register_parameter("bias", new_parameter({width}))),
      eps(own_eps) {}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

RmsNormImpl::RmsNormImpl(int64_t width, double own_eps)
    : weight(register_parameter("weight", new_parameter({width}))), eps(own_eps) {}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) const {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps);
  return weight * (wide * scale).to(x.scalar_type());
}

Activation activation(const std::string& name, const std::string& key, const std::string& file) {
  static const std::map<std::string, Activation> known{
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu_new", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_fast", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_pytorch_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"mish", [](const at::Tensor& x) { return at::mish(x); }},
      {"quick_gelu", [](const at::Tensor& x) { return x * at::sigmoid(1.702 * x); }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"relu2", [](const at::Tensor& x) { return at::relu(x).square(); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }},
      {"swish", [](const at::Tensor& x) { return at::silu(x); }},
      {"tanh", [](const at::Tensor& x) { return at::tanh(x); }},
  };
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::string names;
  for (const auto& [each, function] : known) names += (names.empty() ? "" : ", ") + each;
  throw DataError({.what = "'" + key + "' in " + file + " is '" + name +
                           "', which is no activation that is known here",
                   .hint = "known are " + names});
}

at::Tensor dropout(const at::Tensor& x, double probability, bool training) {
  return training && probability > 0 ? at::dropout(x, probability, true) : x;
}

}  // namespace accelerate::transformers
