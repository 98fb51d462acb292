// Models for the tests of model files.
#pragma once

#include <torch/torch.h>

#include <string>

namespace accelerate::test {

// Parameters and buffers of its own before those of its children, as Python lists them.
struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(int64_t width = 4) {
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(3, width), torch::nn::BatchNorm1d(width)));
    scale = register_parameter("scale", torch::randn({1}));
    count = register_buffer("count", torch::arange(3));
    head = register_module("head", torch::nn::Linear(width, 2));
  }
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
  at::Tensor scale, count;
};
TORCH_MODULE(SmallNet);

// A linear layer whose weight somebody else has made.
struct SharedLinearImpl : torch::nn::Module {
  explicit SharedLinearImpl(const at::Tensor& shared)
      : weight(register_parameter("weight", shared)) {}
  at::Tensor weight;
};
TORCH_MODULE(SharedLinear);

// Embedding and head are one parameter.
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    embed = register_module("embed", torch::nn::Embedding(5, 3));
    mid = register_module("mid", torch::nn::Linear(3, 3));
    head = register_module("head", SharedLinear(embed->weight));
  }
  torch::nn::Embedding embed{nullptr};
  torch::nn::Linear mid{nullptr};
  SharedLinear head{nullptr};
};
TORCH_MODULE(TiedNet);

// Whether two states have the same names in the same order, types and bits.
inline bool same_state(const torch::OrderedDict<std::string, at::Tensor>& left,
                       const torch::OrderedDict<std::string, at::Tensor>& right) {
  if (left.keys() != right.keys()) return false;
  for (const auto& item : left) {
    const at::Tensor& other = right[item.key()];
    if (item.value().scalar_type() != other.scalar_type()) return false;
    if (!torch::equal(item.value(), other)) return false;
  }
  return true;
}

// A copy that does not change with the model.
inline torch::OrderedDict<std::string, at::Tensor> copy_of(
    const torch::OrderedDict<std::string, at::Tensor>& state) {
  torch::OrderedDict<std::string, at::Tensor> copy;
  for (const auto& item : state) copy.insert(item.key(), item.value().detach().clone());
  return copy;
}

}  // namespace accelerate::test
