// Sharded trainings end with the parameters of one process, and of DDP.
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

constexpr int kZeroSteps = 5;

struct ZeroTraining : Ranks {};

TEST_F(ZeroTraining, EndsWithTheParametersOfOneProcess) {
  for (const int ranks : {1, 2, 3, 4}) {
    run(ranks, [](const Rank&) {
      for (const ZeroRecipe& recipe :
           {ZeroRecipe{}, ZeroRecipe{.optimizer = "sgd", .max_norm = 0.05},
            ZeroRecipe{.optimizer = "adam", .forwards = 3, .max_value = 0.01}}) {
        const std::vector<double> expected = train_alone(recipe, kZeroSteps);
        for (const int stage : zero_stages()) {
          ZeroLoop own(zero(stage, with_unused()), recipe);
          EXPECT_TRUE(near(own.train(0, kZeroSteps).values(), expected))
              << "stage " << stage << ", " << recipe.optimizer;
        }
      }
    });
  }
}

TEST_F(ZeroTraining, EqualsDdpToTheLastBitOnTwoRanks) {
  run(2, [](const Rank&) {
    for (const char* optimizer : {"sgd", "adam", "adamw", "adagrad", "rmsprop", "sign"}) {
      const ZeroRecipe recipe{.optimizer = optimizer, .forwards = 2, .max_value = 0.01};
      ZeroLoop usual(replicated(), recipe);
      const std::vector<double> expected = usual.train(0, kZeroSteps).values();
      for (const int stage : zero_stages()) {
        ZeroLoop own(zero(stage, with_unused()), recipe);
        EXPECT_EQ(own.accelerator.strategy_name(), "zero");
        EXPECT_EQ(own.train(0, kZeroSteps).values(), expected) << "stage " << stage << optimizer;
        EXPECT_EQ(own.net->calls.item<int64_t>(), 2 * kZeroSteps);
      }
    }
  });
}

TEST_F(ZeroTraining, ClipsByTheNormOfAllGradients) {
  for (const int ranks : {2, 3}) {
    run(ranks, [](const Rank&) {
      const ZeroRecipe recipe{.max_norm = 0.02};
      ZeroLoop usual(replicated(), recipe);
      const std::vector<double> expected = usual.train(0, kZeroSteps).values();
      for (const int stage : zero_stages()) {
        ZeroLoop own(zero(stage, with_unused()), recipe);
        EXPECT_TRUE(near(own.train(0, kZeroSteps).values(), expected, 1e-6)) << "stage " << stage;
        EXPECT_TRUE(near(own.norms, usual.norms, 1e-6)) << "stage " << stage;
      }
    });
  }
}

TEST_F(ZeroTraining, MeasuresNormsOfAnyOrder) {
  run(3, [](const Rank&) {
    const auto norms = [](const AcceleratorOptions& options) {
      ZeroLoop loop(options);
      const StepData data = data_of_step(0, 2);
      loop.accelerator.backward(loss_of((*loop.model)(data.input), data.target));
      std::vector<double> all;
      for (const double order : {1.0, 2.0, 3.5, std::numeric_limits<double>::infinity()}) {
        all.push_back(loop.accelerator.grad_norm(loop.net->parameters(), {.norm_type = order})
                          .item<double>());
      }
      return all;
    };
    const std::vector<double> expected = norms(replicated());
    for (const int stage : zero_stages()) {
      EXPECT_TRUE(near(norms(zero(stage, with_unused())), expected)) << "stage " << stage;
    }
  });
}

TEST_F(ZeroTraining, AccumulatesAsDdpDoes) {
  run(2, [](const Rank&) {
    for (const bool weighted : {false, true}) {
      const ZeroRecipe recipe{.weighted = weighted};
      ZeroLoop usual(in_windows(replicated(), 2), recipe);
      const std::vector<double> expected = usual.train(0, 6).values();
      for (const int stage : zero_stages()) {
        ZeroLoop own(in_windows(zero(stage, with_unused()), 2), recipe);
        EXPECT_EQ(own.train(0, 6).values(), expected) << "stage " << stage;
        AcceleratorOptions each = in_windows(zero(stage, with_unused()), 2);
        each.gradient_accumulation.sync_each_batch = true;
        ZeroLoop sharded(each, recipe);
        EXPECT_TRUE(near(sharded.train(0, 6).values(), expected, 1e-6)) << "stage " << stage;
      }
    }
  });
}

TEST_F(ZeroTraining, KeepsGradientsOnTheirRankInNoSync) {
  run(2, [](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options) {
      ZeroLoop loop(options);
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, kZeroRows);
        const auto pass = [&](double factor) {
          loop.accelerator.backward(factor *
                                    loss_of((*loop.model)(rows_of(data.input, rank.rank, 6)),
                                            rows_of(data.target, rank.rank, 6)));
        };
        {
          const auto local = loop.accelerator.no_sync(*loop.model);
          pass(1);
          pass(2);
        }
        pass(3);
        pass(4);  // to gradients that are averaged already
        loop.optimizer->step();
        loop.optimizer->zero_grad();
      }
      return loop.values();
    };
    const std::vector<double> expected = train(replicated());
    for (const int stage : zero_stages()) {
      EXPECT_TRUE(near(train(zero(stage, with_unused())), expected, 1e-6)) << "stage " << stage;
    }
  });
}

TEST_F(ZeroTraining, OfScaledLossesIsThatOfDdp) {
  for (const int ranks : {2, 3}) {
    run(ranks, [](const Rank&) {
      const auto scaled = [](AcceleratorOptions options) {
        options.mixed_precision = MixedPrecision::kFp16;
        options.grad_scaler.init_scale = 1024;
        return options;
      };
      for (const double max_norm : {0.0, 0.05}) {
        const ZeroRecipe recipe{.max_norm = max_norm};
        ZeroLoop usual(scaled(replicated()), recipe);
        const std::vector<double> expected = usual.train(0, kZeroSteps).values();
        for (const int stage : zero_stages()) {
          ZeroLoop own(scaled(zero(stage, with_unused())), recipe);
          EXPECT_TRUE(near(own.train(0, kZeroSteps).values(), expected, 2e-3)) << "stage " << stage;
          EXPECT_TRUE(near(own.norms, usual.norms, 2e-3)) << "stage " << stage;
        }
      }
    });
  }
}

// Its gradients are scaled, or a part of a sum, and nobody is to use them.
TEST_F(ZeroTraining, AModelThatNoOptimizerUpdatesMayGetGradients) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      for (const bool is_scaled : {true, false}) {
        AcceleratorOptions options = zero(stage);
        if (is_scaled) options.mixed_precision = MixedPrecision::kFp16;
        if (!is_scaled) options.gradient_accumulation.steps = 2;
        Accelerator accelerator(options);
        torch::manual_seed(1);
        auto frozen = std::make_shared<Mlp>();
        auto net = std::make_shared<Mlp>();
        auto other = accelerator.prepare(frozen);
        auto [model, optimizer] =
            accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
        const std::vector<double> before = values_of(net->parameters());
        for (int step = 0; step < 4; ++step) {
          const auto window = accelerator.accumulate(model, other);
          const at::Tensor input = ones({2, 6});
          accelerator.backward((model(input) + other(input)).sum());
          optimizer.step();
          optimizer.zero_grad();
          other.zero_grad();
        }
        EXPECT_NE(values_of(net->parameters()), before);
      }
    }
  });
}

TEST_F(ZeroTraining, UnderAutocastEqualsDdpOnTwoRanks) {
  run(2, [](const Rank&) {
    const auto in_bf16 = [](AcceleratorOptions options) {
      options.mixed_precision = MixedPrecision::kBf16;
      return options;
    };
    ZeroLoop usual(in_bf16(replicated()));
    const std::vector<double> expected = usual.train(0, kZeroSteps).values();
    for (const int stage : zero_stages()) {
      ZeroLoop own(in_bf16(zero(stage, with_unused())));
      const std::vector<double> values = own.train(0, kZeroSteps).values();
      if (stage < 3) {
        EXPECT_EQ(values, expected) << "stage " << stage;
      } else {  // a parameter that is used twice is cast twice, and its gradients added in float32
        EXPECT_TRUE(near(values, expected, 2e-3));
      }
    }
  });
}

TEST_F(ZeroTraining, ThatOverflowsInOneShardStepsOnNoRank) {
  struct LongRow : torch::nn::Module {
    LongRow() : row(register_parameter("row", torch::ones({256}, test_device()))) {}
    at::Tensor forward(const at::Tensor& factors) { return (row * factors).sum(); }
    at::Tensor row;
  };
  run(3, [](const Rank&) {
    for (const int stage : zero_stages()) {
      for (const bool unscales : {false, true}) {
        AcceleratorOptions options = zero(stage);
        options.mixed_precision = MixedPrecision::kFp16;
        options.grad_scaler.init_scale = 1024;
        Accelerator accelerator(options);
        auto net = std::make_shared<LongRow>();
        auto [model, optimizer] =
            accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
        const auto step = [&, &model = model, &optimizer = optimizer](double last) {
          at::Tensor factors = torch::ones({256}, test_device());
          factors[255] = last;
          accelerator.backward(model(factors));
          if (unscales) accelerator.unscale_gradients();
          optimizer.step();
          optimizer.zero_grad();
          return accelerator.optimizer_step_was_skipped();
        };
        EXPECT_TRUE(step(std::numeric_limits<double>::infinity()));
        EXPECT_EQ(values_of({net->row}), std::vector<double>(256, 1.0));
        EXPECT_EQ(accelerator.scaler()->scale_factor(), 512);
        EXPECT_FALSE(step(1));
        EXPECT_EQ(optimizer.step_count(), 1);
        for (const double value : values_of({net->row})) EXPECT_NEAR(value, 0.9, 1e-2);
      }
    }
  });
}

TEST_F(ZeroTraining, OfSeveralModelsAndOptimizersIsThatOfDdp) {
  run(2, [](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      torch::manual_seed(3);
      auto one = std::make_shared<Mlp>(40);
      auto other = std::make_shared<Mlp>(30);
      // One optimizer for a part of a model, one for the rest of it and another model.
      std::vector<at::Tensor> rest{one->second->weight, one->second->bias};
      for (const at::Tensor& parameter : other->parameters()) rest.push_back(parameter);
      auto [first, second, sgd, adam] =
          accelerator.prepare(one, other, torch::optim::SGD(one->first->parameters(), 0.1),
                              torch::optim::Adam(rest, 0.01));
      for (int step = 0; step < 4; ++step) {
        const StepData data = data_of_step(step, 2 * kRows);
        const at::Tensor input = rows_of(data.input, rank.rank);
        const at::Tensor target = rows_of(data.target, rank.rank);
        if (step == 2) {
          accelerator.backward(loss_of(first(input), target), {.only = first});
        } else {
          accelerator.backward(loss_of(first(input) + second(input), target));
        }
        sgd.step();
        if (step != 3) adam.step();
        sgd.zero_grad();
        adam.zero_grad(/*set_to_none=*/step != 1);
      }
      std::vector<double> values = values_of(one->parameters());
      const std::vector<double> more = values_of(other->parameters());
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    const std::vector<double> expected = train(on_cpu());
    for (const int stage : zero_stages()) {
      EXPECT_EQ(train(zero(stage)), expected) << "stage " << stage;
    }
  });
}

TEST_F(ZeroTraining, FollowsWhatAProgramDoesToParameters) {
  run(2, [](const Rank&) {
    const auto train = [](const AcceleratorOptions& options) {
      ZeroLoop loop(options);
      loop.train(0, 2);
      {
        const torch::NoGradGuard no_grad;
        for (at::Tensor& parameter : loop.net->parameters()) parameter.mul_(0.5);
        loop.net->head->weight.set_data(loop.net->head->weight.detach().clone().add_(0.1));
      }
      loop.net->shared->bias.set_requires_grad(false);
      loop.train(2, 4);
      loop.net->shared->bias.set_requires_grad(true);
      loop.net->eval();
      const torch::NoGradGuard no_grad;
      (void)(*loop.model)(data_of_step(9, 3).input);
      return loop.values();
    };
    const std::vector<double> expected = train(replicated());
    for (const int stage : {1, 2}) {  // in stage 3 nobody writes to parameters
      EXPECT_EQ(train(zero(stage, with_unused())), expected) << "stage " << stage;
    }
  });
}

TEST_F(ZeroTraining, UpdatesAParameterThatIsListedTwiceAsOftenAsDdp) {
  run(2, [](const Rank&) {
    const auto train = [](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      const auto net = odd_net();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, 4);
        accelerator.backward(loss_of(model(data.input), data.target));
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_EQ(optimizer.parameters().size(), net->parameters().size());
      return values_of(net->parameters());
    };
    const std::vector<double> expected = train(replicated());
    for (const int stage : zero_stages()) {
      EXPECT_EQ(train(zero(stage, with_unused())), expected) << "stage " << stage;
    }
  });
}

TEST_F(ZeroTraining, TakesOverWhatAnOptimizerHasKept) {
  run(2, [](const Rank&) {
    for (const char* name : {"sgd", "adam"}) {
      const auto train = [&](const AcceleratorOptions& options) {
        const auto net = odd_net();
        const auto own = zero_optimizer(name, distinct(net->parameters()));
        const auto loss = [&] {
          const StepData data = data_of_step(0, 6);
          return loss_of(net->forward(data.input), data.target);
        };
        loss().backward();
        own->step();
        own->zero_grad();
        Accelerator accelerator(options);
        auto [model, optimizer] = accelerator.prepare(net, *own);
        for (int step = 0; step < 2; ++step) {
          const StepData data = data_of_step(step, 6);
          accelerator.backward(loss_of(model(data.input), data.target));
          optimizer.step();
          optimizer.zero_grad();
        }
        return values_of(net->parameters());
      };
      const std::vector<double> expected = train(replicated());
      for (const int stage : zero_stages()) {
        EXPECT_EQ(train(zero(stage, with_unused())), expected) << "stage " << stage << name;
      }
    }
  });
}

// Tables whose gradients are sparse, and parameters of no model, are not sharded.
TEST_F(ZeroTraining, LeavesAloneWhatCannotBeSharded) {
  if (wanted_test_device() == TestDevice::kGpuOverNccl) GTEST_SKIP() << kNoSparseSums;
  struct Table : torch::nn::Module {
    Table()
        : table(register_module(
              "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 6).sparse(true)))),
          head(register_module("head", torch::nn::Linear(6, 30))) {}
    at::Tensor forward(const at::Tensor& rows) { return head(table(rows)); }
    torch::nn::Embedding table;
    torch::nn::Linear head;
  };
  run(2, [](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      torch::manual_seed(2);
      auto net = on_test_device(std::make_shared<Table>());
      at::Tensor own = ones({70}).set_requires_grad(true);
      std::vector<at::Tensor> all = net->parameters();
      all.push_back(own);
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(all, 0.1));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor rows = (torch::arange(3) + 5 * rank.rank + step).to(test_device());
        accelerator.backward(model(rows).square().mean());
        own.mutable_grad() = torch::full_like(own, 0.5).detach();
        optimizer.step();
        optimizer.zero_grad();
      }
      all.back() = own;
      return flat(all);
    };
    EXPECT_EQ(train(zero(1)), train(on_cpu()));
  });
}

}  // namespace
}  // namespace accelerate::test
