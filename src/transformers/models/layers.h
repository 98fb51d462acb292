// The layers that models are built of. Unlike those of torch::nn they allocate parameters without
// giving them values: that is the business of from_pretrained() and from_config().
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace accelerate::transformers {

// x W^T + b, W [out, in].
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias = true);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight{}, bias{};
};
TORCH_MODULE(Linear);

// x W + b, W [in, out]: how GPT-2 keeps its matrices.
class Conv1dImpl : public torch::nn::Module {
 public:
  Conv1dImpl(int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight{}, bias{};
};
TORCH_MODULE(Conv1d);

class EmbeddingImpl : public torch::nn::Module {
 public:
  // `padding` has no gradient; -1: there is none.
  EmbeddingImpl(int64_t count, int64_t width, int64_t padding = -1);
  at::Tensor forward(const at::Tensor& ids) const;

  at::Tensor weight{};

 private:
  int64_t padding_;
};
TORCH_MODULE(Embedding);

class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight{}, bias{};
  const double eps;
};
TORCH_MODULE(LayerNorm);

// In float32 whatever x is, as Llama and T5 want it.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight{};
  const double eps;
};
TORCH_MODULE(RmsNorm);

// {"a.weight"} -> {"prefix.a.weight"}.
std::vector<std::string> prefixed(const std::string& prefix, std::vector<std::string> names);

using Activation = std::function<at::Tensor(const at::Tensor&)>;

// By the name that config.json has for it: "gelu", "gelu_new", "relu", "silu", "tanh" and so on.
// Throws DataError that lists the known ones; `key` and `file` are for the message.
Activation activation(const std::string& name, const std::string& key, const std::string& file);

// A new child of `parent` that only gives what is registered with it a longer name.
torch::nn::Module& room(torch::nn::Module& parent, const std::string& name);

// torch::dropout, which costs nothing where it does nothing.
at::Tensor drop_out(const at::Tensor& x, double probability, bool training);

}  // namespace accelerate::transformers
