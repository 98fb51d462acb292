// Scaled losses where ranks hold parts of parameters, or of the state of their optimizer.
#include <limits>

#include "install/consumer/strategies/sharded_optimizer_strategy.h"
#include "multiproc/strategy/piece_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct ScaledPieces : Ranks {};

AcceleratorOptions scaled(AcceleratorOptions options) {
  options.mixed_precision = MixedPrecision::kFp16;
  options.grad_scaler.init_scale = 1024;
  return options;
}

AcceleratorOptions with_sharded_optimizer() {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::make_shared<strategies::ShardedOptimizerFactory>();
  return options;
}

TEST_F(ScaledPieces, AreTrainedWithScaledLosses) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank& rank) {
      for (const double max_norm : {0.0, 0.1}) {
        PieceLoop usual(scaled(on_cpu()));
        usual.max_norm = max_norm;
        const std::vector<double> expected = usual.train(0, 5).values();
        for (const AcceleratorOptions& options : {sharded(), with_sharded_optimizer()}) {
          PieceLoop own(scaled(options));
          own.max_norm = max_norm;
          const std::vector<double> values = own.train(0, 5).values();
          if (rank.rank == 0) EXPECT_TRUE(near(values, expected, 2e-3));
          EXPECT_TRUE(near(own.norms, usual.norms, 2e-3));
        }
      }
    });
  }
}

// The gradient of one element overflows: on one rank alone it is in the part that it sees. With
// three ranks one sees nothing of a parameter of two elements.
struct PairNet : torch::nn::Module {
  PairNet() : pair(register_parameter("pair", torch::ones({2}, test_device()))) {}
  at::Tensor forward(const at::Tensor& factors) { return (pair * factors).sum(); }
  at::Tensor pair;
};

TEST_F(ScaledPieces, ThatOverflowOnOneRankAreSteppedOnNone) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank&) {
      const double infinity = std::numeric_limits<double>::infinity();
      for (const AcceleratorOptions& options : {sharded(), with_sharded_optimizer()}) {
        for (const bool unscales : {false, true}) {
          Accelerator accelerator(scaled(options));
          auto net = std::make_shared<PairNet>();
          auto [model, optimizer] =
              accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
          const auto step = [&, &model = model, &optimizer = optimizer](double first) {
            accelerator.backward(model(torch::tensor({first, 1.0}).to(test_device(), at::kFloat)));
            if (unscales) accelerator.unscale_gradients();
            optimizer.step();
            optimizer.zero_grad();
            return accelerator.optimizer_step_was_skipped();
          };
          const std::vector<double> before = flat({model.strategy()->master_of(net->pair)});
          EXPECT_TRUE(step(infinity));
          EXPECT_EQ(flat({model.strategy()->master_of(net->pair)}), before);
          EXPECT_EQ(accelerator.scaler()->scale_factor(), 512);
          EXPECT_FALSE(step(1));
          EXPECT_EQ(accelerator.scaler()->scale_factor(), 512);
          EXPECT_EQ(optimizer.step_count(), 1);
          const at::Tensor own = model.strategy()->master_of(net->pair);
          if (own.numel() > 0) EXPECT_NEAR(flat({own})[0], 0.9, 1e-2);
        }
      }
    });
  }
}

TEST_F(ScaledPieces, OfAnIdleOptimizerAreLeftAlone) {
  run(2, [](const Rank&) {
    Accelerator accelerator(scaled(sharded()));
    auto net = std::make_shared<PairNet>();
    auto other = std::make_shared<PairNet>();
    auto [model, optimizer, idle_model, idle] =
        accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1), other,
                            torch::optim::AdamW(other->parameters(), 0.1));
    for (int i = 0; i < 2; ++i) {
      accelerator.backward(model(ones({2})), {.only = model});
      accelerator.unscale_gradients();
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_EQ(optimizer.step_count(), 2);
    EXPECT_EQ(idle.step_count(), 0);
    EXPECT_THAT(usage_error([&, &model = model, &optimizer = optimizer] {
                  accelerator.backward(model(ones({2})), {.only = model});
                  optimizer.step();
                  optimizer.step();
                }),
                HasSubstr("already stepped with these gradients"));
  });
}

// Somebody drops unscaled gradients behind the library's back, on all ranks.
TEST_F(ScaledPieces, WhoseUnscaledGradientsAreDroppedGoOn) {
  run(3, [](const Rank&) {
    Accelerator accelerator(scaled(sharded()));
    auto net = std::make_shared<PairNet>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
    accelerator.backward(model(ones({2})));
    accelerator.unscale_gradients();
    net->zero_grad();
    accelerator.backward(model(ones({2})));
    optimizer.step();
    EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(optimizer.step_count(), 1);
  });
}

}  // namespace
}  // namespace accelerate::test
