// What users do to flat parameters, their gradients and optimizers beside the prepared calls.
#include <cmath>

#include "multiproc/strategy/flat_branches.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatCalls : Ranks {};

TEST_F(FlatCalls, ZeroGradOfAnyKindIsFollowed) {
  run(1, [](const Rank&) {
    FlatLoop prepared(flat_in_bf16());
    FlatLoop of_module(flat_in_bf16());
    FlatLoop of_own(flat_in_bf16());
    FlatLoop of_conversion(flat_in_bf16());
    for (int i = 0; i < 4; ++i) {
      for (FlatLoop* loop : {&prepared, &of_module, &of_own, &of_conversion}) {
        loop->backward(i);
        loop->optimizer.step();
      }
      prepared.optimizer.zero_grad();
      of_module.net->zero_grad();
      of_own.own->zero_grad();
      static_cast<torch::optim::Optimizer&>(of_conversion.optimizer).zero_grad();
    }
    EXPECT_EQ(of_module.exact(), prepared.exact());
    EXPECT_EQ(of_own.exact(), prepared.exact());
    EXPECT_EQ(of_conversion.exact(), prepared.exact());
  });
}

TEST_F(FlatCalls, ZeroGradInsideAWindowLosesNothing) {
  run(2, [](const Rank&) {
    FlatLoop quiet(flat_in_bf16(3));
    FlatLoop of_module(flat_in_bf16(3));
    FlatLoop of_own(flat_in_bf16(3));
    for (int i = 0; i < 6; ++i) {
      of_module.net->zero_grad();
      of_own.own->zero_grad();
      for (FlatLoop* loop : {&quiet, &of_module, &of_own}) loop->micro_batch(i);
    }
    EXPECT_EQ(of_module.exact(), quiet.exact());
    EXPECT_EQ(of_own.exact(), quiet.exact());
  });
}

// What zero_grad() of a model calls, and that of an optimizer.
TEST_F(FlatCalls, DroppedGradientsAreGoneAndTheirPlacesZeros) {
  run(1, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    for (const bool of_model : {true, false}) {
      loop.backward(0);
      EXPECT_GT(loop.unit().gradient().abs().sum().item<float>(), 0);
      const at::Tensor part = loop.net->first->weight.grad();
      if (of_model) {
        loop.model.zero_grad();
      } else {
        loop.optimizer.strategy().drop_gradients(true);
      }
      EXPECT_EQ(loop.unit().gradient().abs().sum().item<float>(), 0);
      EXPECT_FALSE(loop.net->first->weight.grad().defined());
      loop.backward(0);
      EXPECT_TRUE(loop.net->first->weight.grad().is_same(part));
    }
  });
}

TEST_F(FlatCalls, StepsOfTheUsersOwnOptimizerReachTheModel) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "sgd"}) {
      FlatLoop prepared(flat_in_bf16(), name);
      FlatLoop own(flat_in_bf16(), name);
      for (int i = 0; i < 4; ++i) {
        for (FlatLoop* loop : {&prepared, &own}) loop->backward(i);
        prepared.step();
        own.own->step();
        own.own->zero_grad();
      }
      EXPECT_TRUE(near(own.exact(), prepared.exact(), 1e-5)) << name;
    }
  });
}

// Nobody can be asked then whether there was a step.
TEST_F(FlatCalls, StepsOfTheUsersOwnOptimizerReachTheModelAlsoWithoutAPreparedHandle) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "sgd"}) {
      FlatLoop expected(flat_in_bf16(), name);
      Accelerator accelerator(flat_in_bf16());
      auto net = fresh_net();
      auto own = optimizer_named(name, net->parameters());
      auto model = accelerator.prepare(net);
      { const auto dropped = accelerator.prepare(own); }
      for (int i = 0; i < 4; ++i) {
        expected.backward(i);
        expected.step();
        const Sample batch = expected.batch(i);
        accelerator.backward(loss_of(model(batch.data), batch.target));
        own->step();
        own->zero_grad();
      }
      model(ones({2, 6}));
      EXPECT_TRUE(near(flat(net->parameters()), expected.values())) << name;
      // The same pass, and no step.
      net->first->bias.data().fill_(0.75);
      model(ones({2, 6}));
      EXPECT_TRUE(net->first->bias.eq(0.75).all().item<bool>()) << name;
    }
  });
}

// Its first parameters are not updated then.
TEST_F(FlatCalls, AnOwnStepOfAPartOfTheParametersReachesTheModel) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum", "sgd"}) {
      FlatBranches it(flat_in_bf16(), name);
      for (int step = 0; step < 2; ++step) {
        it.backward(step, "b");
        const at::Tensor before = it.unit().values().clone();
        it.own->step();
        it.own->zero_grad();
        it.model(ones({2, 6}), "b");
        EXPECT_FALSE(torch::equal(it.unit().values(), before)) << name;
        EXPECT_TRUE(torch::equal(it.unit().values(), it.unit().masters().to(at::kBFloat16)))
            << name;
      }
    }
  });
}

TEST_F(FlatCalls, AnOwnStepBeforeItsTimeIsSeen) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = flat_in_bf16();
    options.mixed_precision = MixedPrecision::kFp16;
    options.flat->dtype = at::kHalf;
    FlatLoop loop(options);
    loop.backward(0);
    loop.own->step();
    EXPECT_THAT(usage_error([&] { loop.optimizer.step(); }),
                HasSubstr("while its gradients were still"));
  });
}

TEST_F(FlatCalls, ConvertedOptimizersKnowTheUsersParameters) {
  run(1, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    const torch::optim::Optimizer& converted = loop.optimizer;
    EXPECT_TRUE(converted.param_groups()[0].params()[0].is_same(loop.net->parameters()[0]));
    EXPECT_TRUE(loop.optimizer.parameters()[0].is_same(loop.net->parameters()[0]));
    EXPECT_EQ(loop.own->param_groups()[0].params()[0].scalar_type(), at::kFloat);
  });
}

// The idiom of WGAN, which leaves no trace, and the one that does.
void clamp_all(const torch::nn::Module& module, bool by_data) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    if (by_data) {
      parameter.data().clamp_(-0.05, 0.05);
    } else {
      parameter.clamp_(-0.05, 0.05);
    }
  }
}

TEST_F(FlatCalls, ValuesThatWereWrittenThroughDataAreTrainedFrom) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    run(2, [type](const Rank&) {
      AcceleratorOptions options = flat_in_bf16();
      options.flat->dtype = type;
      if (type == at::kHalf) options.mixed_precision = MixedPrecision::kFp16;
      for (const std::string name : {"adamw", "sgd", "momentum", "rmsprop"}) {
        for (const bool before_step : {false, true}) {
          const auto trained = [&](bool clamps, bool by_data) {
            FlatLoop loop(options, name);
            for (int i = 0; i < 4; ++i) {
              loop.backward(i);
              if (clamps && before_step) clamp_all(*loop.net, by_data);
              loop.optimizer.step();
              if (clamps && !before_step) clamp_all(*loop.net, by_data);
              loop.optimizer.zero_grad();
            }
            loop.model(ones({2, 6}));
            return loop.exact();
          };
          const auto expected = trained(true, false);
          EXPECT_EQ(trained(true, true), expected) << name << before_step;
          EXPECT_FALSE(near(trained(false, false), expected, 0.05)) << name << before_step;
        }
      }
    });
  }
}

TEST_F(FlatCalls, ValuesThatACapturedStepWritesThroughDataAreTrainedFrom) {
  run(1, [](const Rank&) {
    const auto trained = [](bool captures) {
      FlatLoop loop(flat_in_bf16());
      const auto of_step = [&](const Sample& batch) {
        const at::Tensor loss = loop.loss(batch);
        loop.accelerator.backward(loss);
        loop.optimizer.step();
        clamp_all(*loop.net, /*by_data=*/true);
        loop.optimizer.zero_grad();
        return loss.detach();
      };
      auto captured = loop.accelerator.capture(of_step);
      for (int i = 0; i < 8; ++i) {
        captures ? captured(loop.batch(i)) : of_step(loop.batch(i));
      }
      return loop.exact();
    };
    const auto values = trained(true);
    EXPECT_TRUE(alike(values, trained(false)));
    for (const double value : values) EXPECT_LE(std::abs(value), 0.0503);
  });
}

}  // namespace
}  // namespace accelerate::test
