// Modules as libtorch has them, with parameters in units: the same digits as without.
#include <ATen/autocast_mode.h>
#include <accelerate/autocast.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "unit/residency/lone_shards.h"

namespace accelerate::test {
namespace {

struct OddNetImpl : torch::nn::Module {
  torch::nn::Embedding tokens{50, 16};
  torch::nn::Linear wide{16, 32};
  torch::nn::Linear narrow{32, 16};
  torch::nn::Conv1d convolution{torch::nn::Conv1dOptions(16, 16, 3).padding(1)};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
  torch::nn::LSTM memory{torch::nn::LSTMOptions(16, 16).num_layers(2).batch_first(true)};
  torch::nn::MultiheadAttention attention{torch::nn::MultiheadAttentionOptions(16, 4)};
  torch::nn::BatchNorm1d batch_norm{16};

  OddNetImpl() {
    register_module("tokens", tokens);
    register_module("wide", wide);
    register_module("narrow", narrow);
    register_module("convolution", convolution);
    register_module("norm", norm);
    register_module("memory", memory);
    register_module("attention", attention);
    register_module("batch_norm", batch_norm);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = tokens(ids);
    x = narrow(torch::gelu(wide(x))) + x;
    x = batch_norm(convolution(x.transpose(1, 2))).transpose(1, 2).contiguous();
    x = std::get<0>(memory(norm(x)));
    x = std::get<0>(attention(x, x, x));
    x = narrow(torch::gelu(wide(x))) + x;                     // used twice
    return torch::nn::functional::linear(x, tokens->weight);  // tied
  }
};
TORCH_MODULE(OddNet);

// One thread: the models are small, and other tests run beside this one.
OddNet odd_net() {
  torch::set_num_threads(1);
  torch::manual_seed(3);
  return OddNet();
}

struct Pass {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

Pass pass_of(OddNet& net, bool autocast = false) {
  torch::manual_seed(4);
  net->zero_grad();
  const at::Tensor ids = torch::randint(50, {4, 7});
  const at::Tensor targets = torch::randint(50, {28});
  at::Tensor out;
  {
    AutocastOptions options;
    options.enabled = autocast;
    const Autocast scope(at::kCPU, at::kBFloat16, options);
    out = net->forward(ids);
  }
  const at::Tensor loss =
      torch::nn::functional::cross_entropy(out.to(at::kFloat).reshape({-1, 50}), targets);
  loss.backward();
  Pass pass{.loss = loss.detach(), .gradients = {}};
  for (const at::Tensor& parameter : net->parameters()) pass.gradients.push_back(parameter.grad());
  return pass;
}

void expect_same(const Pass& actual, const Pass& expected) {
  EXPECT_TRUE(actual.loss.equal(expected.loss));
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    EXPECT_TRUE(actual.gradients[i].equal(expected.gradients[i])) << "parameter " << i;
  }
}

TEST(TouchedModules, LossAndGradientsHaveTheSameDigits) {
  OddNet plain = odd_net();
  OddNet parted = odd_net();
  const LoneUnits lone(*parted);
  for (int step = 0; step < 3; ++step) expect_same(pass_of(parted), pass_of(plain));
}

TEST(TouchedModules, AutocastGivesTheSameDigits) {
  OddNet plain = odd_net();
  OddNet parted = odd_net();
  LoneUnits lone(*parted);
  for (int step = 0; step < 3; ++step) {
    expect_same(pass_of(parted, true), pass_of(plain, true));
    lone.units.release_all();
  }
}

TEST(TouchedModules, EvaluationWithoutGradientsGivesTheSameDigits) {
  OddNet plain = odd_net();
  OddNet parted = odd_net();
  const LoneUnits lone(*parted);
  plain->eval();
  parted->eval();
  const at::Tensor ids = torch::arange(12).reshape({3, 4});
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(parted->forward(ids).equal(plain->forward(ids)));
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(parted->forward(ids).equal(plain->forward(ids)));
}

}  // namespace
}  // namespace accelerate::test
