// What flat parameters do not have, and what ranks may not do to them.
#include "multiproc/strategy/flat_branches.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct FlatRefusals : Ranks {};

TEST_F(FlatRefusals, RanksMustHaveTheSameOptions) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = with_flat({.seed = static_cast<uint64_t>(rank.rank)});
    Accelerator accelerator(options);
    EXPECT_THAT(usage_error([&] { accelerator.prepare(fresh_net()); }), HasSubstr("flat.seed"));
  });
}

TEST_F(FlatRefusals, WhatItDoesNotHaveIsRefused) {
  run(2, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    EXPECT_THAT(usage_error([&] { loop.accelerator.join_uneven_inputs([] {}); }),
                HasSubstr("cannot be joined"));
    AcceleratorOptions hooked = flat_in_bf16();
    hooked.ddp.comm_hook.hook = CommHook::kBf16;
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(hooked); }), HasSubstr("hooks"));
    AcceleratorOptions wide = with_flat({.dtype = at::kDouble});
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(wide); }), HasSubstr("Double"));
    AcceleratorOptions bare = with_flat({.dtype = at::kHalf, .masters = false});
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(bare); }), HasSubstr("masters"));
    loop.train(0, 1);
    Accelerator accelerator(flat_in_bf16());
    auto half_frozen = fresh_net();
    half_frozen->first->weight.set_requires_grad(false);
    auto model = accelerator.prepare(half_frozen);
    half_frozen->first->weight.set_requires_grad(true);
    EXPECT_THAT(usage_error([&] {
                  accelerator.backward(model(ones({2, 6})).sum());
                }),
                HasSubstr("'first.weight' was frozen"));
    loop.net->to(at::kFloat);
    EXPECT_THAT(usage_error([&] { loop.train(1, 2); }),
                AllOf(HasSubstr("flat vector"), HasSubstr("[rank ")));
  });
}

// libtorch's own words, which follow in the forward pass, do not say what to set.
TEST_F(FlatRefusals, InputsThatNeedMixedPrecisionAreForetold) {
  run(1, [](const Rank&) {
    const auto said_of = [](const AcceleratorOptions& options, auto module) {
      testing::internal::CaptureStderr();
      Accelerator accelerator(options);
      auto model = accelerator.prepare(module);
      auto other = accelerator.prepare(fresh_net());
      return testing::internal::GetCapturedStderr();
    };
    const std::string text = said_of(with_flat({}), fresh_net());
    const std::string kToSet = "set AcceleratorOptions::mixed_precision = \"bf16\"";
    EXPECT_THAT(text, HasSubstr(kToSet));
    EXPECT_EQ(text.find(kToSet), text.rfind(kToSet)) << text;
    EXPECT_THAT(said_of(with_flat({.dtype = at::kHalf}), fresh_net()), HasSubstr("\"fp16\""));
    EXPECT_THAT(said_of(flat_in_bf16(), fresh_net()), Not(HasSubstr("mixed_precision")));
    EXPECT_THAT(said_of(with_flat({.dtype = at::kFloat}), fresh_net()),
                Not(HasSubstr("mixed_precision")));
    testing::internal::CaptureStderr();
    Accelerator accelerator(with_flat({}));
    auto tokens = accelerator.prepare(
        torch::nn::Sequential(torch::nn::Embedding(5, 4), torch::nn::Linear(4, 2)));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("mixed_precision")));
  });
}

TEST_F(FlatRefusals, PassesThatBypassTheAcceleratorAreRefused) {
  run(2, [](const Rank&) {
    FlatLoop stepping(with_flat({.dtype = at::kFloat}));
    stepping.loss(0).backward();
    EXPECT_THAT(usage_error([&] { stepping.optimizer.step(); }), HasSubstr("this rank alone"));
    EXPECT_THAT(usage_error([&] { stepping.loss(0); }), HasSubstr("this rank alone"));
    stepping.optimizer.zero_grad();
    stepping.train(0, 1);
    // Meant to stay here, and brought together by the pass that follows.
    FlatLoop local(with_flat({.dtype = at::kFloat}));
    {
      const auto alone = local.accelerator.no_sync(local.model);
      local.loss(0).backward();
    }
    local.train(0, 2);
    FlatLoop twice(without_flat());
    {
      const auto alone = twice.accelerator.no_sync(twice.model);
      twice.backward(0);
    }
    twice.train(0, 2);
    EXPECT_TRUE(alike(local.values(), twice.values()));
  });
}

// Nobody averages their gradients.
TEST_F(FlatRefusals, ParametersOfNoModelAreComparedOverTheRanks) {
  run(2, [](const Rank& rank) {
    for (const AcceleratorOptions& options : plain_and_flat()) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      const at::Tensor loose = torch::ones({3}, test_device()).requires_grad_();
      std::vector<at::Tensor> parameters = net->parameters();
      parameters.push_back(loose);
      auto own = optimizer_named("adamw", parameters);
      auto [model, optimizer] = accelerator.prepare(net, own);
      accelerator.backward((model(ones({2, 6}) * (rank.rank + 1)) * loose).sum());
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] {
                    optimizer.step();
                    accelerator.wait_for_everyone();  // the rank that came first learns of it here
                  }),
                  HasSubstr("no prepared model holds this parameter"));
    }
  });
}

TEST_F(FlatRefusals, GradientsThatWereAssignedAreComparedOverTheRanks) {
  run(2, [](const Rank& rank) {
    for (const AcceleratorOptions& options : plain_and_flat()) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      auto own = optimizer_named("adamw", net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      for (at::Tensor& parameter : net->parameters()) {
        parameter.mutable_grad() = torch::full_like(parameter, rank.rank + 1.0);
      }
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] {
                    optimizer.step();
                    accelerator.wait_for_everyone();  // the rank that came first learns of it here
                  }),
                  HasSubstr("has not averaged it since the last step"));
    }
  });
}

}  // namespace
}  // namespace accelerate::test
