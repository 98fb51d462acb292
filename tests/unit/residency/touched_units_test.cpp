// When units come and go, and what is refused.
#include <gmock/gmock.h>

#include <thread>

#include "compat/touched.h"
#include "unit/residency/touched_chain.h"

namespace accelerate::test {
namespace {

using residency::TouchOptions;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TouchedUnits, KeepOnlyTheShardOfTheirRankAndPiecesAreParametersOfIt) {
  Chain net = chain(1);
  const at::Tensor weight = net->links[0]->weight.detach().clone();
  const at::Tensor bias = net->links[0]->bias.detach().clone();
  LoneUnits lone(*net);
  EXPECT_EQ(lone.units.size(), 1U);
  EXPECT_EQ(lone.units.shard(0).numel(), 64);
  EXPECT_TRUE(lone.units.piece(0, 0).equal(weight.reshape({-1})));
  EXPECT_EQ(lone.units.piece(0, 1).numel(), 0);  // of rank 1
  EXPECT_TRUE(lone.units.piece(0, 0).requires_grad());
  EXPECT_EQ(lone.units.find(net->links[0]->bias), std::pair(size_t{0}, size_t{1}));
  EXPECT_EQ(lone.units.find(bias), std::nullopt);
  EXPECT_EQ(lone.units.whole_numel(), 0);
}

TEST(TouchedUnits, AreGatheredWhenTouchedAndGoWhenTheNextOneIs) {
  Chain net = chain(3);
  LoneUnits lone(*net, {.prefetch_units = 0});
  net->forward(input());
  EXPECT_THAT(lone.gatherer->begun, ElementsAre(0, 1, 2));
  EXPECT_EQ(lone.units.whole_numel(), 128);
  net->links[2](input());
  EXPECT_EQ(lone.units.gathers(), 3);
}

TEST(TouchedUnits, AreGatheredAgainInTheBackwardPassInReverse) {
  Chain net = chain(4);
  LoneUnits lone(*net, {.prefetch_units = 0});
  train(net, lone);
  EXPECT_THAT(lone.gatherer->begun, ElementsAre(0, 1, 2, 3, 2, 1));  // nobody asks for d loss / dx
  EXPECT_EQ(lone.units.whole_numel(), 0);
}

TEST(TouchedUnits, StayBetweenThePassesIfTheyAreNotReleasedAfterForward) {
  Chain net = chain(4);
  LoneUnits lone(*net, {.release_after_forward = false, .prefetch_units = 0});
  train(net, lone);
  EXPECT_THAT(lone.gatherer->begun, ElementsAre(0, 1, 2, 3));
}

TEST(TouchedUnits, TheNextOneIsOnItsWayWhileThePresentOneComputes) {
  Chain net = chain(3);
  LoneUnits lone(*net);
  train(net, lone);
  train(net, lone);
  lone.gatherer->events.clear();
  const at::Tensor x = net->links[0](input());
  EXPECT_THAT(lone.gatherer->events, ElementsAre("begin 0", "end 0", "begin 1"));
  net->links[1](x);
  EXPECT_THAT(lone.gatherer->events,
              ElementsAre("begin 0", "end 0", "begin 1", "end 1", "begin 2"));
}

TEST(TouchedUnits, GatherNoMoreOftenWithPrefetch) {
  Chain net = chain(5);
  LoneUnits lone(*net);
  for (int step = 0; step < 3; ++step) train(net, lone);
  lone.gatherer->begun.clear();
  train(net, lone);
  EXPECT_THAT(lone.gatherer->begun, ElementsAre(0, 1, 2, 3, 4, 2, 1));  // 3 stays at the turn
}

TEST(TouchedUnits, AnOrderThatChangesIsFollowed) {
  Chain net = chain(4);
  LoneUnits lone(*net);
  for (int step = 0; step < 3; ++step) train(net, lone);
  net->order = {0, 2, 3, 1};
  Chain plain = chain(4);
  plain->order = net->order;
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    plain->zero_grad();
    train(net, lone);
    plain->forward(input()).sum().backward();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(net->links[i]->weight.grad().equal(plain->links[i]->weight.grad()));
    }
  }
  lone.gatherer->begun.clear();
  train(net, lone);
  EXPECT_THAT(lone.gatherer->begun,
              ElementsAre(0, 2, 3, 1, 2));  // 3 is needed at once, so it stays
}

TEST(TouchedUnits, NoMoreAreWholeThanTheLimitAllows) {
  Chain net = chain(6);
  LoneUnits lone(*net, {.release_after_forward = false, .max_whole_numel = 3 * 128});
  for (int step = 0; step < 3; ++step) {
    at::Tensor x = input();
    for (auto& link : net->links) {
      x = link(x);
      EXPECT_LE(lone.units.whole_numel(), 3 * 128);
    }
    x.sum().backward();
    EXPECT_LE(lone.units.whole_numel(), 3 * 128);
    lone.units.release_all();
  }
}

TEST(TouchedUnits, OneThatIsNeededAgainSoonStays) {
  Chain net = chain(3);
  net->order = {0, 1, 0, 2};
  LoneUnits lone(*net, {.keep_within_numel = 128, .prefetch_units = 0});
  for (int step = 0; step < 3; ++step) {
    const torch::NoGradGuard no_grad;
    lone.gatherer->begun.clear();
    net->forward(input());
    lone.units.release_all();
  }
  EXPECT_THAT(lone.gatherer->begun, ElementsAre(0, 1, 2));
}

TEST(TouchedUnits, ViewsAndShapesGatherNothing) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  const at::Tensor& weight = net->links[0]->weight;
  const at::Tensor view = weight.detach().view({64}).narrow(0, 8, 8).unsqueeze(0).expand({2, 8});
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({8, 8}));
  EXPECT_TRUE(torch::zeros_like(weight).is_contiguous());
  weight.requires_grad_(false);
  weight.requires_grad_(true);
  EXPECT_EQ(lone.units.gathers(), 0);
  EXPECT_TRUE(view.add(0).equal(chain(1)->links[0]->weight.detach()[1].expand({2, 8})));
  EXPECT_EQ(lone.units.gathers(), 1);
}

TEST(TouchedUnits, PrintLikeOthers) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  std::ostringstream parted;
  std::ostringstream plain;
  parted << net->links[0]->bias;
  plain << chain(1)->links[0]->bias;
  EXPECT_EQ(parted.str(), plain.str());
}

TEST(TouchedUnits, AnOperationOnSeveralHasThemAllWhole) {
  Chain net = chain(3);
  LoneUnits lone(*net, {.max_whole_numel = 128});
  const at::Tensor all =
      torch::cat({net->links[0]->bias, net->links[1]->bias, net->links[2]->bias});
  Chain plain = chain(3);
  EXPECT_TRUE(
      all.equal(torch::cat({plain->links[0]->bias, plain->links[1]->bias, plain->links[2]->bias})));
}

TEST(TouchedUnits, APointerOfAParameterInPiecesIsRefusedByName) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  const auto pointer = [&] { return net->links[0]->weight.data_ptr(); };
  EXPECT_THAT([&] { pointer(); }, testing::ThrowsMessage<c10::Error>(HasSubstr(
                                      "parameter '0.weight' is in pieces on several ranks")));
  EXPECT_THROW(net->links[0]->weight.data_ptr<float>(), c10::Error);
  {
    const compat::Touch touch({net->links[0]->weight}, "a kernel");
    EXPECT_EQ(static_cast<float*>(pointer())[3], chain(1)->links[0]->weight.data_ptr<float>()[3]);
  }
  lone.units.release_all();
  EXPECT_THROW(pointer(), c10::Error);
}

TEST(TouchedUnits, WritesAreRefusedUnlessTheScopeKeepsThem) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  at::Tensor weight = net->links[0]->weight;
  const torch::NoGradGuard no_grad;
  EXPECT_THAT(refusal_of([&] { weight.zero_(); }),
              HasSubstr("aten::zero_ writes to parameter '0.weight'"));
  EXPECT_THAT(refusal_of([&] { torch::_foreach_mul_({weight}, 2.0); }), HasSubstr("'0.weight'"));
  EXPECT_THAT(refusal_of([&] { weight.resize_({4}); }), HasSubstr("would give other memory"));
  {
    const auto scope = lone.units.whole();
    EXPECT_THAT(refusal_of([&] { weight.zero_(); }), HasSubstr("what it writes would be lost"));
  }
  {
    auto scope = lone.units.whole({0}, {.write_back = true});
    weight.mul_(2);
    scope.end();
  }
  EXPECT_EQ(lone.units.whole_numel(), 0);
  EXPECT_TRUE(lone.units.piece(0, 0).equal(chain(1)->links[0]->weight.reshape({-1}).mul(2)));
}

TEST(TouchedUnits, WrittenValuesOfOneRankGoToAll) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  auto scope = lone.units.whole({}, {.write_back = true, .from_rank = 1});
  scope.end();
  EXPECT_THAT(lone.gatherer->events, testing::Contains("broadcast from 1"));
}

TEST(TouchedUnits, MastersKeepWhatIsBeyondTheNarrowValueUnlessItIsWritten) {
  Chain net = chain(1);
  const at::Tensor masters = net->links[0]->weight.detach().clone().reshape({-1});
  LoneUnits lone(*net, {.whole_dtype = at::kBFloat16});
  EXPECT_EQ(net->links[0]->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(lone.units.shard(0).scalar_type(), at::kFloat);
  {
    const torch::NoGradGuard no_grad;
    auto scope = lone.units.whole({}, {.write_back = true});
    net->links[0]->weight.view({64})[5] = 3;
    scope.end();
  }
  at::Tensor expected = masters.clone();
  expected[5] = 3;
  EXPECT_TRUE(lone.units.piece(0, 0).detach().equal(expected));
  const at::Tensor y = net->forward(input().to(at::kBFloat16));
  y.sum().backward();
  EXPECT_EQ(net->links[0]->weight.grad().scalar_type(), at::kBFloat16);
}

TEST(TouchedUnits, ScopesNestAndShardsDoNotChangeInThem) {
  Chain net = chain(2);
  LoneUnits lone(*net);
  {
    const auto outer = lone.units.whole();
    { const auto inner = lone.units.whole({1}); }
    EXPECT_EQ(lone.units.whole_numel(), 256);
    net->forward(input());
    lone.units.release_all();
    EXPECT_EQ(lone.units.whole_numel(), 256);
    EXPECT_THAT(refusal_of([&] { lone.units.shards_changed(); }), HasSubstr("end the scope first"));
    EXPECT_EQ(lone.gatherer->begun.size(), 2U);
  }
  EXPECT_EQ(lone.units.whole_numel(), 0);
}

TEST(TouchedUnits, UpdatedShardsAreSeenAndGraphsOfBeforeAreRefused) {
  Chain net = chain(2);
  LoneUnits lone(*net);
  const at::Tensor before = net->forward(input());
  {
    const torch::NoGradGuard no_grad;
    lone.units.piece(0, 0).add_(1);
  }
  lone.units.shards_changed();
  EXPECT_FALSE(net->forward(input()).equal(before));
  EXPECT_THAT([&] { before.sum().backward(); },
              testing::ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
}

TEST(TouchedUnits, GiveBackPlainParameters) {
  Chain net = chain(2);
  {
    LoneUnits lone(*net);
    net->forward(input());
    lone.units.give_back();
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(compat::touched_storage(net->links[i]->weight), nullptr);
    EXPECT_TRUE(net->links[i]->weight.equal(chain(2)->links[i]->weight));
    const torch::NoGradGuard no_grad;
    net->links[i]->weight.zero_();
  }
}

TEST(TouchedUnits, AreRefusedByNameWhenTheirKeeperIsGone) {
  Chain net = chain(1);
  { const LoneUnits lone(*net); }
  EXPECT_THAT(refusal_of([&] { net->forward(input()); }), HasSubstr("'0.bias' was in pieces"));
}

TEST(TouchedUnits, ParametersThatHaveLeftThemAreFound) {
  Chain net = chain(2);
  LoneUnits lone(*net);
  lone.units.require_in_place("forward");
  net->links[1]->bias.set_data(torch::zeros({8}));
  EXPECT_THAT(refusal_of([&] { lone.units.require_in_place("forward"); }),
              HasSubstr("parameter '1.bias' has got other memory than its unit has"));
}

TEST(TouchedUnits, AGatherThatFailsThrowsInTheOperationAndMayBeRepeated) {
  Chain net = chain(2);
  LoneUnits lone(*net);
  lone.gatherer->fails = true;
  EXPECT_THROW(net->forward(input()), std::runtime_error);
  EXPECT_EQ(lone.units.whole_numel(), 0);
  lone.gatherer->fails = false;
  EXPECT_TRUE(net->forward(input()).equal(chain(2)->forward(input())));
}

// A model that was never whole anywhere: each rank writes what it keeps.
TEST(TouchedUnits, ParametersWithoutMemoryGetTheirValuesByPieces) {
  Chain plain = chain(2);
  std::vector<residency::UnitParameters> units(1);
  at::Tensor weight = torch::empty({8, 8}, at::TensorOptions(at::kMeta)).requires_grad_();
  units[0] = {.name = "u", .parameters = {weight}, .names = {"weight"}};
  EXPECT_THAT(refusal_of([&] { LoneUnits(units, {}, 0, 1); }), HasSubstr("has no memory"));
  auto gatherer = std::make_shared<LoneGatherer>(units, 0, 1);
  residency::TouchedUnits kept(units, 0, 1, gatherer, {.device = at::kCPU});
  EXPECT_EQ(weight.device(), at::kCPU);
  {
    const torch::NoGradGuard no_grad;
    kept.piece(0, 0).copy_(plain->links[0]->weight.reshape({-1}));
  }
  kept.shards_changed();
  const at::Tensor y = torch::nn::functional::linear(input(), weight);
  EXPECT_TRUE(y.equal(torch::nn::functional::linear(input(), plain->links[0]->weight)));
  y.sum().backward();
  EXPECT_EQ(weight.grad().device(), at::kCPU);
}

TEST(TouchedUnits, ThatCannotBeAreRefusedBeforeAnythingChanges) {
  const at::Tensor dense = torch::ones({4});
  const auto refusal = [&](std::vector<at::Tensor> parameters) {
    std::vector<std::string> names;
    for (size_t i = 0; i < parameters.size(); ++i) names.push_back("p" + std::to_string(i));
    return refusal_of(
        [&] { LoneUnits({{.name = "u", .parameters = parameters, .names = names}}); });
  };
  EXPECT_THAT(refusal({dense, torch::ones({4}, at::kDouble)}),
              HasSubstr("parameter 'p1' of unit 'u' differs in dtype"));
  EXPECT_THAT(refusal({dense, dense}), HasSubstr("is there twice"));
  EXPECT_THAT(refusal({dense, torch::ones({4}, at::kLong)}), HasSubstr("floating-point"));
  EXPECT_EQ(compat::touched_storage(dense), nullptr);
}

TEST(TouchedUnits, ManyThreadsTouchAtOnce) {
  Chain net = chain(4);
  LoneUnits lone(*net);
  Chain plain = chain(4);
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int step = 0; step < 50; ++step) {
        const at::Tensor x = torch::full({2, 8}, static_cast<double>(step));
        right[i] += net->links[i](x).equal(plain->links[i](x)) ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(right, ElementsAre(50, 50, 50, 50));
}

TEST(TouchedUnits, SeveralForwardPassesBeforeOneBackwardPassAreThoseOfPlainParameters) {
  Chain net = chain(3);
  LoneUnits lone(*net);
  Chain plain = chain(3);
  const auto gradient = [](Chain& of) {
    const at::Tensor first = of->forward(input());
    of->order = {1, 1, 0};  // and one unit twice, another not at all
    const at::Tensor second = of->forward(input() * 2);
    (first * second).sum().backward();
    of->order.clear();
    return of->links[1]->weight.grad();
  };
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(gradient(net).equal(gradient(plain)));
    lone.units.release_all();
  }
}

TEST(TouchedUnits, GradientsOfGradientsOfInputsAreThoseOfPlainParameters) {
  Chain net = chain(3);
  LoneUnits lone(*net);
  Chain plain = chain(3);
  const auto penalty = [](Chain& of) {
    const at::Tensor x = input().requires_grad_();
    const auto first = torch::autograd::grad({of->forward(x).sum()}, {x}, {}, true, true);
    first[0].square().sum().backward();
    return of->links[0]->weight.grad();
  };
  EXPECT_TRUE(penalty(net).equal(penalty(plain)));
}

}  // namespace
}  // namespace accelerate::test
