// What checkpoints keep of flat parameters, and what becomes of these in the end.
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "multiproc/state_folder.h"
#include "multiproc/strategy/flat_loop.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatState : Ranks {
  StateFolder folder;
};

TEST_F(FlatState, AResumedRunIsTheUninterruptedOne) {
  for (const int64_t steps : {1, 2}) {
    for (const bool masters : {true, false}) {
      run(2, [&](const Rank&) {
        const auto name =
            folder / ("state" + std::to_string(steps) + (masters ? "masters" : "bare"));
        AcceleratorOptions options = flat_in_bf16(steps);
        options.flat->masters = masters;
        FlatLoop whole(options);
        whole.train(0, 5);
        whole.accelerator.save_state(name);
        whole.train(5, 10);
        FlatLoop resumed(options);
        resumed.train(20, 21);  // is thrown away
        resumed.accelerator.load_state(name);
        EXPECT_EQ(resumed.optimizer.step_count(), 5 / steps);
        resumed.train(5, 10);
        EXPECT_EQ(resumed.exact(), whole.exact());
        EXPECT_TRUE(alike(resumed.values(), whole.values()));
      });
    }
  }
}

TEST_F(FlatState, ACheckpointHoldsTheMastersAndGoesBothWays) {
  run(1, [&](const Rank&) {
    FlatLoop half(flat_in_bf16());
    half.train(0, 3);
    half.accelerator.save_state(folder / "half");
    FlatLoop plain(without_flat());
    plain.accelerator.load_state(folder / "half");
    EXPECT_EQ(plain.values(), half.exact());
    EXPECT_EQ(plain.net->first->weight.scalar_type(), at::kFloat);
    plain.train(3, 5);
    plain.accelerator.save_state(folder / "plain");
    half.accelerator.load_state(folder / "plain");
    EXPECT_EQ(half.exact(), plain.values());
    EXPECT_TRUE(torch::equal(half.unit().values(), half.unit().masters().to(at::kBFloat16)));
    // As large as what it holds, not as the vectors that it is part of.
    const auto bytes = std::filesystem::file_size(folder / "half" / "optimizer.bin");
    EXPECT_LT(bytes, 20000u);
  });
}

TEST_F(FlatState, StateIsLoadedInPlaceAfterCapturedSteps) {
  run(1, [&](const Rank&) {
    for (const bool masters : {true, false}) {
      AcceleratorOptions options = flat_in_bf16();
      options.flat->masters = masters;
      FlatLoop loop(options);
      auto step = loop.accelerator.capture([&](const Sample& batch) {
        const at::Tensor loss = loop.loss(batch);
        loop.accelerator.backward(loss);
        loop.step();
        return loss.detach();
      });
      const auto train = [&](int first, int last) {
        for (int i = first; i < last; ++i) step(loop.batch(i));
      };
      train(0, 3);
      loop.accelerator.save_state(folder / "state");
      train(3, 6);
      const auto after = loop.exact();
      const void* values = loop.unit().values().data_ptr();
      loop.accelerator.load_state(folder / "state");
      train(3, 6);
      EXPECT_TRUE(alike(loop.exact(), after)) << masters;
      EXPECT_EQ(loop.unit().values().data_ptr(), values);
      EXPECT_EQ(loop.net->first->weight.data_ptr(), values);
    }
  });
}

// The count of its steps is then below the one that was seen last.
TEST_F(FlatState, OwnStepsReachTheModelAfterAnOlderCheckpointWasLoaded) {
  run(1, [&](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    loop.train(0, 1);
    loop.accelerator.save_state(folder / "early");
    loop.train(1, 5);
    loop.accelerator.load_state(folder / "early");
    loop.backward(1);
    const at::Tensor before = loop.unit().values().clone();
    loop.own->step();
    loop.loss(1);
    EXPECT_FALSE(torch::equal(loop.unit().values(), before));
    EXPECT_TRUE(torch::equal(loop.unit().values(), loop.unit().masters().to(at::kBFloat16)));
  });
}

TEST_F(FlatState, WhatAnOptimizerHasDoneThatWasNotPreparedIsSaved) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(flat_in_bf16());
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    const auto before = flat(net->parameters());
    for (const at::Tensor& parameter : net->parameters()) parameter.data().add_(0.5);
    const auto after = flat(net->parameters());
    EXPECT_NE(after, before);
    accelerator.save_state(folder / "state");
    for (const at::Tensor& parameter : net->parameters()) parameter.data().zero_();
    accelerator.load_state(folder / "state");
    EXPECT_EQ(flat(net->parameters()), after);
  });
}

TEST_F(FlatState, RanksWhoseMastersDifferAreNotSaved) {
  run(2, [&](const Rank& rank) {
    FlatLoop loop(flat_in_bf16());
    loop.train(0, 2);
    // By less than the model can tell.
    if (rank.rank == 1) loop.unit().masters()[0] += 1e-7;
    EXPECT_THAT(usage_error([&] { loop.accelerator.save_state(folder / "state"); }),
                HasSubstr("the masters of model 0"));
    // A rank that is wrong by itself keeps nobody waiting.
    if (rank.rank == 1) loop.net->to(at::kFloat);
    EXPECT_THAT(usage_error([&] { loop.accelerator.save_state(folder / "state"); }),
                HasSubstr("flat vector"));
  });
}

TEST_F(FlatState, MastersThatWereWrittenToBecomeTheParameters) {
  run(1, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    {
      const torch::NoGradGuard no_grad;
      loop.model.strategy()->master_of(loop.net->second->bias).fill_(0.123);
    }
    loop.model.strategy()->masters_changed();
    EXPECT_TRUE(loop.net->second->bias.eq(at::BFloat16(0.123F)).all().item<bool>());
    EXPECT_NEAR(loop.exact().back(), 0.123, 1e-7);
  });
}

TEST_F(FlatState, ModelsThatWereReleasedCanBePreparedAgain) {
  run(2, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    loop.train(0, 3);
    const auto before = loop.exact();
    loop.accelerator.free_memory();
    EXPECT_EQ(loop.net->first->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(loop.values(), before);
    EXPECT_THAT(usage_error([&] { loop.optimizer.step(); }), HasSubstr("free_memory"));
    loop.model = loop.accelerator.prepare(loop.net);
    loop.optimizer = loop.accelerator.prepare(loop.own);
    EXPECT_EQ(loop.exact(), before);
    loop.train(3, 6);
    FlatLoop whole(flat_in_bf16());
    whole.train(0, 6);
    EXPECT_EQ(loop.exact(), whole.exact());
  });
}

// An optimizer that nobody holds any more may be gone; here it is, and other things are in its
// place.
TEST_F(FlatState, AnOptimizerThatIsGoneIsNotAskedAboutItsUpdates) {
  for (const std::string called : {"save_state", "get_state_dict", "step"}) {
    run(1, [&](const Rank&) {
      Accelerator accelerator(flat_in_bf16());
      auto net = fresh_net();
      auto own = optimizer_named("adamw", net->first->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      alignas(torch::optim::AdamW) std::array<std::byte, sizeof(torch::optim::AdamW)> place{};
      auto* adamw = new (place.data()) torch::optim::AdamW(net->second->parameters(), 0.02);
      {
        auto of_second = accelerator.prepare(*adamw);
        accelerator.backward(model(ones({2, 6})).square().sum());
        optimizer.step();
        of_second.step();
      }
      std::destroy_at(adamw);
      for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<std::byte>(i + 1);
      if (called == "save_state") {
        accelerator.save_state(folder / "gone");
      } else if (called == "get_state_dict") {
        EXPECT_EQ(accelerator.get_state_dict(model)["first.bias"].scalar_type(), at::kFloat);
      } else {
        optimizer.step();
      }
    });
  }
}

TEST_F(FlatState, AModuleThatOutlivesItsAcceleratorIsOrdinaryAgain) {
  run(1, [](const Rank&) {
    const AcceleratorOptions options = flat_in_bf16();
    const auto train = [&](Accelerator& accelerator, const std::shared_ptr<Mlp>& net,
                           const std::shared_ptr<torch::optim::Optimizer>& own) {
      auto [model, optimizer] = accelerator.prepare(net, own);
      accelerator.backward(model(ones({2, 6})).square().sum());
      optimizer.step();
      return flat({model.strategy()->master_of(net->first->weight)});
    };
    auto net = fresh_net();
    std::vector<double> exact;
    {
      Accelerator accelerator(options);
      exact = train(accelerator, net, optimizer_named("adamw", net->parameters()));
      EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
      const Accelerator moved(std::move(accelerator));
      EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
    }
    EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(flat({net->first->weight}), exact);
    // The next accelerator finds what the last one has trained.
    Accelerator accelerator(options);
    auto other = fresh_net();
    train(accelerator, other, optimizer_named("adamw", other->parameters()));
    accelerator = Accelerator(options);
    EXPECT_EQ(other->first->weight.scalar_type(), at::kFloat);
    auto model = accelerator.prepare(net);
    EXPECT_EQ(flat({model.strategy()->master_of(net->first->weight)}), exact);
  });
}

TEST_F(FlatState, APreparedModelThatOutlivesItsAcceleratorGoesOn) {
  run(1, [](const Rank&) {
    const AcceleratorOptions options = flat_in_bf16();
    auto net = fresh_net();
    auto own = optimizer_named("adamw", net->parameters());
    std::optional<PreparedModel<Mlp>> model;
    {
      Accelerator accelerator(options);
      model = accelerator.prepare(net);
      auto optimizer = accelerator.prepare(own);
      accelerator.backward((*model)(ones({2, 6})).square().sum());
      optimizer.step();
    }
    EXPECT_TRUE((*model)(ones({2, 6})).isfinite().all().item<bool>());
    EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
  });
}

}  // namespace
}  // namespace accelerate::test
