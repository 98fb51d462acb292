// GPT-2 on fused operations beside the same network on operators of libtorch: tiny, on the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "../examples/gpt2/plain_gpt2.h"
#include "accelerate/accelerate.h"

namespace {

const gpt2::Config kTiny{.vocabulary = 64, .positions = 16, .layers = 2, .heads = 2, .width = 32};

std::pair<at::Tensor, at::Tensor> a_batch() {
  const at::Tensor walk = (torch::randint(2, {8, 17}) * 7 + 1).cumsum(1).remainder(64);
  return {walk.narrow(1, 0, 16).contiguous(), walk.narrow(1, 1, 16).contiguous()};
}

template <class Model>
std::vector<double> losses_of(Model net, at::ScalarType type, int steps) {
  accelerate::Accelerator accelerator(
      {.cpu = true, .flat = accelerate::FlatOptions{.dtype = type}});
  auto adamw = gpt2::adamw_for(*net, 1e-2, 0.01);
  auto model = accelerator.prepare(net);
  auto optimizer = accelerator.prepare(adamw);
  torch::manual_seed(9);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto [tokens, targets] = a_batch();
    const at::Tensor loss = model(tokens, targets);
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

gpt2::Gpt2 a_model() {
  torch::manual_seed(8);
  return gpt2::Gpt2(kTiny);
}

TEST(Gpt2Test, FusedAndPlainNetworksTrainAlike) {
  const auto fused = losses_of(a_model(), at::kFloat, 30);
  const auto plain = losses_of(gpt2::PlainGpt2(a_model()), at::kFloat, 30);
  for (size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(fused[i], plain[i], 1e-3) << i;
  EXPECT_LT(fused.back(), 0.6 * fused.front());
}

TEST(Gpt2Test, Bfloat16WithMastersFollowsFloat32) {
  const auto half = losses_of(a_model(), at::kBFloat16, 60);
  const auto plain = losses_of(gpt2::PlainGpt2(a_model()), at::kFloat, 60);
  const auto last = [](const std::vector<double>& losses) {
    double sum = 0;
    for (size_t i = losses.size() - 20; i < losses.size(); ++i) sum += losses[i];
    return sum / 20;
  };
  EXPECT_NEAR(last(half) / last(plain), 1.0, 0.01);
}

TEST(Gpt2Test, TheSizesAreThoseOfThePublishedModels) {
  int64_t numel = 0;
  for (const at::Tensor& parameter : gpt2::Gpt2(gpt2::Config{})->parameters()) {
    numel += parameter.numel();
  }
  EXPECT_EQ(numel, 124'475'904);
  EXPECT_EQ(gpt2::config_named("1558M").layers, 48);
  EXPECT_THROW(gpt2::config_named("1B"), std::invalid_argument);
}

}  // namespace
