#include "transformers/models/layers.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "transformers/models/allocation.h"

namespace accelerate::transformers {

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias)
    : weight(register_parameter("weight", new_parameter({out, in}))) {
  if (with_bias) bias = register_parameter("bias", new_parameter({out}));
}

at::Tensor LinearImpl::forward(const at::Tensor& x) const { return ops::linear(x, weight, bias); }

Conv1dImpl::Conv1dImpl(int64_t in, int64_t out)
    : weight(register_parameter("weight", new_parameter({in, out}))),
      bias(register_parameter("bias", new_parameter({out}))) {}

at::Tensor Conv1dImpl::forward(const at::Tensor& x) const {
  return ops::linear(x, weight, bias, ops::WeightLayout::kInputsFirst);
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

std::vector<std::string> prefixed(const std::string& prefix, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, prefix + ".");
  return names;
}

namespace {

// The error function about a mean of sqrt(1/2) with a deviation of sqrt(1/(4 pi)), as checkpoints
// were trained with: both to six digits.
at::Tensor laplace(const at::Tensor& x) {
  return at::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)).add(1.0).mul(0.5);
}

}  // namespace

Activation activation(const std::string& name, const std::string& key, const std::string& file) {
  static const std::map<std::string, Activation> known{
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu_10", [](const at::Tensor& x) { return at::gelu(x).clamp(-10, 10); }},
      {"gelu_accurate", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_new", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_fast", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_python", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu_python_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"gelu_pytorch_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"hardswish", [](const at::Tensor& x) { return at::hardswish(x); }},
      {"laplace", laplace},
      {"leaky_relu", [](const at::Tensor& x) { return at::leaky_relu(x); }},
      {"linear", [](const at::Tensor& x) { return x; }},
      {"mish", [](const at::Tensor& x) { return at::mish(x); }},
      {"quick_gelu", [](const at::Tensor& x) { return x * at::sigmoid(1.702 * x); }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"relu2", [](const at::Tensor& x) { return at::relu(x).square(); }},
      {"relu6", [](const at::Tensor& x) { return at::relu6(x); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }},
      {"sqrtsoftplus", [](const at::Tensor& x) { return at::softplus(x).sqrt(); }},
      {"swish", [](const at::Tensor& x) { return at::silu(x); }},
      {"tanh", [](const at::Tensor& x) { return at::tanh(x); }},
  };
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::string names;
  for (const auto& [each, function] : known) names += (names.empty() ? "" : ", ") + each;
  throw DataError(
      {.what = "'" + key + "' in " + file + " is '" + name + "', which is not a known activation",
       .hint = "known: " + names});
}

torch::nn::Module& room(torch::nn::Module& parent, const std::string& name) {
  return *parent.register_module(name, std::make_shared<torch::nn::Module>());
}

at::Tensor drop_out(const at::Tensor& x, double probability, bool training) {
  return training && probability > 0 ? at::dropout(x, probability, true) : x;
}

}  // namespace accelerate::transformers
