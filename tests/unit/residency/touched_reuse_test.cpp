// A large unit that a pass needs at both of its ends, as tied embeddings are.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "unit/residency/lone_shards.h"

namespace accelerate::test {
namespace {

using residency::TouchOptions;
using testing::ElementsAre;

constexpr int64_t kEnds = 512;
constexpr int64_t kLink = 128;

// Unit 0 is four times as large as each of the others.
struct TiedEndsImpl : torch::nn::Module {
  TiedEndsImpl() {
    ends = register_module("ends",
                           torch::nn::Linear(torch::nn::LinearOptions(8, kEnds / 8).bias(false)));
    for (int i = 0; i < 5; ++i) {
      links.push_back(register_module(std::to_string(i), torch::nn::Linear(8, 8)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    x = ends(x).narrow(1, 0, 8);
    for (auto& link : links) x = torch::tanh(link(x));
    return ends(x);
  }
  torch::nn::Linear ends{nullptr};
  std::vector<torch::nn::Linear> links{};
};
TORCH_MODULE(TiedEnds);

TiedEnds tied_ends() {
  torch::manual_seed(2);
  return {};
}

at::Tensor rows() { return torch::linspace(-1, 1, 16).reshape({2, 8}); }

// What a training step gathers, once the order is known.
std::vector<size_t> gathered_in_a_step(const TouchOptions& options, int64_t* most = nullptr) {
  TiedEnds net = tied_ends();
  LoneUnits lone(*net, options);
  for (int step = 0; step < 4; ++step) {
    lone.gatherer->begun.clear();
    int64_t whole = 0;
    const auto look = [&] { whole = std::max(whole, lone.units.whole_numel()); };
    at::Tensor x = net->ends(rows()).narrow(1, 0, 8);
    look();
    for (auto& link : net->links) {
      x = torch::tanh(link(x));
      look();
      x.register_hook([&](const at::Tensor&) { look(); });
    }
    x = net->ends(x);
    look();
    x.sum().backward();
    look();
    lone.units.release_all();
    if (most != nullptr) *most = whole;
  }
  return lone.gatherer->begun;
}

TEST(TouchedReuse, OfALargeUnitWithSmallOnesBetweenNeedsNoSecondGather) {
  int64_t most = 0;
  // 3 and 4 stay at the turn, for which there is room beside it.
  EXPECT_THAT(gathered_in_a_step({}, &most), ElementsAre(0, 1, 2, 3, 4, 5, 2, 1));
  EXPECT_LT(most, 3 * (kEnds + kLink) / 2);
}

TEST(TouchedReuse, GoesNoFurtherThanTheLimit) {
  int64_t most = 0;
  EXPECT_THAT(gathered_in_a_step({.max_whole_numel = kEnds + kLink}, &most),
              ElementsAre(0, 1, 2, 3, 4, 5, 0, 4, 3, 2, 1));
  EXPECT_EQ(most, kEnds + kLink);
}

TEST(TouchedReuse, IsNotThatOfStepsLongAgo) {
  TiedEnds net = tied_ends();
  LoneUnits lone(*net);
  const auto evaluate = [&] {
    const torch::NoGradGuard no_grad;
    lone.gatherer->begun.clear();
    at::Tensor x = rows();
    for (auto& link : net->links) x = torch::tanh(link(x));
    lone.units.release_all();
    return lone.units.whole_numel();
  };
  const at::Tensor out = net->forward(rows());
  out.sum().backward();
  lone.units.release_all();
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(evaluate(), 0);
  // Of one size: two at a time, as if the large one had never been.
  at::Tensor x = rows();
  const torch::NoGradGuard no_grad;
  for (auto& link : net->links) {
    x = torch::tanh(link(x));
    EXPECT_LE(lone.units.whole_numel(), 2 * kLink);
  }
}

TEST(TouchedReuse, ChangesNoGradient) {
  TiedEnds plain = tied_ends();
  TiedEnds net = tied_ends();
  LoneUnits lone(*net);
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    net->zero_grad();
    plain->forward(rows()).sum().backward();
    net->forward(rows()).sum().backward();
    lone.units.release_all();
    for (size_t i = 0; i < plain->parameters().size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].grad().equal(plain->parameters()[i].grad())) << i;
    }
  }
}

}  // namespace
}  // namespace accelerate::test
