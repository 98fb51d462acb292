// Parameters that live in shards: which are whole together, and what a program may do with them.
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ZeroInUnits : Ranks {};

AcceleratorOptions with_units(const ZeroUnits& units) {
  AcceleratorOptions options = zero(3);
  options.strategy = ZeroOptions{.stage = 3, .units = units};
  return options;
}

AcceleratorOptions with_threshold(int stage, int64_t threshold) {
  AcceleratorOptions options = zero(stage, with_unused());
  if (stage == 3) return with_units({.persistence_threshold = threshold});
  return options;
}

TEST_F(ZeroInUnits, OfAnyKindTrainsAlike) {
  run(2, [](const Rank&) {
    ZeroLoop usual(replicated());
    const std::vector<double> expected = usual.train(0, 4).values();
    for (const ZeroUnits& units :
         {ZeroUnits{.modules = {"Linear"}}, ZeroUnits{.modules = {"head", "*coder"}},
          ZeroUnits{.min_num_params = 100}, ZeroUnits{.persistence_threshold = 50},
          ZeroUnits{.persistence_threshold = 1000000}, ZeroUnits{.reshard_after_forward = false},
          ZeroUnits{.modules = {"*"}, .max_reuse_distance = 1000, .prefetch = 0},
          ZeroUnits{.modules = {"*"}, .max_live_parameters = 100, .prefetch = 3}}) {
      ZeroLoop own(with_units(units));
      EXPECT_EQ(own.train(0, 4).values(), expected)
          << "modules " << units.modules.size() << ", by size " << units.min_num_params
          << ", threshold " << units.persistence_threshold;
    }
  });
}

TEST_F(ZeroInUnits, IsEvaluatedWithoutGradients) {
  run(3, [](const Rank&) {
    const auto evaluate = [](const AcceleratorOptions& options) {
      ZeroLoop loop(options);
      std::vector<double> outputs;
      for (int step = 0; step < 3; ++step) {
        loop.train(step, step + 1);
        loop.net->eval();
        const torch::NoGradGuard no_grad;
        for (const double value : flat({(*loop.model)(data_of_step(9, 5).input)})) {
          outputs.push_back(value);
        }
        loop.net->train();
      }
      return outputs;
    };
    EXPECT_TRUE(near(evaluate(zero(3)), evaluate(replicated())));
  });
}

TEST_F(ZeroInUnits, RefusesToBeWrittenTo) {
  run(2, [](const Rank&) {
    ZeroLoop loop(zero(3));
    const std::vector<double> before = loop.values();
    EXPECT_THAT(usage_error([&] {
                  const torch::NoGradGuard no_grad;
                  loop.net->head->weight.mul_(2);
                }),
                HasSubstr("head.weight"));
    EXPECT_EQ(loop.values(), before);
    EXPECT_THAT(usage_error([&] {
                  LocalSgd local(loop.accelerator.communicator(), loop.net->parameters(),
                                 loop.model->strategy(), {.local_sgd_steps = 2});
                }),
                HasSubstr("LocalSgd"));
    loop.train(0, 2);
    EXPECT_NE(loop.values(), before);
  });
}

TEST_F(ZeroInUnits, IsWholeForAScope) {
  for (const int ranks : {1, 3}) {
    run(ranks, [](const Rank& rank) {
      ZeroLoop usual(replicated());
      usual.train(0, 3);
      for (const int stage : zero_stages()) {
        ZeroLoop loop(zero(stage, with_unused()));
        loop.train(0, 3);
        auto whole = loop.accelerator.full_parameters(*loop.model);
        // By pointers, and on a rank alone.
        EXPECT_TRUE(near(flat(distinct(loop.net->parameters())), usual.values()));
        if (rank.rank == 0) {
          EXPECT_TRUE(
              near(flat({loop.net->head->weight.sum()}), flat({usual.net->head->weight.sum()})));
        }
        if (stage == 3 && rank.world_size > 1) {
          const torch::NoGradGuard no_grad;
          EXPECT_THAT(usage_error([&] { loop.net->head->weight.mul_(2); }),
                      HasSubstr("full_parameters(model, {.write_back = true})"));
        }
        whole.end();
        EXPECT_TRUE(near(loop.train(3, 5).values(), usual.values(), 1));
      }
    });
  }
}

TEST_F(ZeroInUnits, KeepsWhatIsWrittenInAScope) {
  run(3, [](const Rank& rank) {
    for (const int stage : zero_stages()) {
      for (const std::optional<int> from : {std::optional<int>(), std::optional<int>(2)}) {
        ZeroLoop loop(with_threshold(stage, 20));
        loop.train(0, 2);
        const std::vector<double> before = loop.values();
        {
          auto whole = loop.accelerator.full_parameters(*loop.model,
                                                        {.write_back = true, .from_rank = from});
          if (rank.rank == from.value_or(rank.rank)) {
            const torch::NoGradGuard no_grad;
            for (at::Tensor& parameter : distinct(loop.net->parameters())) parameter.mul_(2);
          }
          whole.end();
        }
        std::vector<double> twice = before;
        for (double& value : twice) value *= 2;
        EXPECT_EQ(loop.values(), twice) << "stage " << stage;
        loop.train(2, 3);
        EXPECT_NE(loop.values(), twice);
      }
      ZeroLoop loop(zero(stage, with_unused()));
      EXPECT_THAT(usage_error([&] {
                    (void)loop.accelerator.full_parameters(*loop.model, {.from_rank = 0});
                  }),
                  HasSubstr("from_rank 0 without write_back"));
      EXPECT_THAT(usage_error([&] {
                    (void)loop.accelerator.full_parameters(*loop.model,
                                                           {.write_back = true, .from_rank = 3});
                  }),
                  HasSubstr("name a rank below 3"));
    }
  });
}

// As DDP with flat parameters does: values in bfloat16, masters and gradients in float32.
void train_in_half_precision(const Rank& rank) {
  const auto train = [&](AcceleratorOptions options) {
    options.mixed_precision = MixedPrecision::kBf16;
    Accelerator accelerator(options);
    torch::manual_seed(4);
    auto net = std::make_shared<Mlp>(50);
    auto [model, optimizer] =
        accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.01));
    for (int step = 0; step < 4; ++step) {
      const StepData data = data_of_step(step, 2 * kRows);
      accelerator.backward(loss_of(model(rows_of(data.input, rank.rank)).to(at::kFloat),
                                   rows_of(data.target, rank.rank)));
      accelerator.clip_grad_norm_(net->parameters(), 0.3);
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
    std::vector<at::Tensor> masters;
    for (const auto& item : accelerator.get_state_dict(model)) {
      EXPECT_EQ(item.value().scalar_type(), at::kFloat);
      masters.push_back(item.value());
    }
    return flat(masters);
  };
  AcceleratorOptions flat_masters = on_cpu();
  flat_masters.flat = FlatOptions{};
  const std::vector<double> expected = train(flat_masters);
  const std::vector<double> masters = train(with_units({.param_dtype = at::kBFloat16}));
  if (rank.rank == 0) EXPECT_TRUE(near(masters, expected, 1e-6));
  EXPECT_THAT(usage_error([&] { Accelerator(with_units({.param_dtype = at::kInt})); }),
              HasSubstr("parameters cannot be Int"));
}

TEST_F(ZeroInUnits, InHalfPrecisionHasItsShardsAsMasters) { run(2, train_in_half_precision); }
TEST_F(ZeroInUnits, InHalfPrecisionOfOneProcessHasMastersToo) { run(1, train_in_half_precision); }

struct NormedNet : Net {
  NormedNet()
      : first(register_module("first", torch::nn::Linear(6, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        last(register_module("last", torch::nn::Linear(8, 3))) {
    to(test_device());
  }
  at::Tensor forward(at::Tensor input) override { return last(norm(first(input))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};

TEST_F(ZeroInUnits, OfOneProcessIsTrainedAsAlone) {
  run(1, [](const Rank&) {
    const auto train = [](const AcceleratorOptions& options, const std::string& strategy) {
      Accelerator accelerator(options);
      EXPECT_EQ(accelerator.strategy_name(), strategy);
      torch::manual_seed(4);
      auto net = std::make_shared<NormedNet>();
      auto [model, optimizer] =
          accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.01));
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, kRows);
        accelerator.backward(loss_of(model(data.input), data.target));
        accelerator.clip_grad_norm_(net->parameters(), 0.3);
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(net->parameters());
    };
    EXPECT_TRUE(near(train(with_units({.param_dtype = at::kFloat}), "zero"),
                     train(zero(3), "single"), 1e-6));
  });
}

// The layers are of one size: what is gathered fits.
TEST_F(ZeroInUnits, TouchedInAnotherOrderOnARankIsToldOnAll) {
  struct TwoWays : torch::nn::Module {
    TwoWays() {
      for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(6, 6));
      register_module("layers", layers);
      to(test_device());
    }
    at::Tensor forward(at::Tensor input, bool is_backwards) {
      for (const int i : {0, is_backwards ? 2 : 1, is_backwards ? 1 : 2}) {
        input = torch::tanh(layers->at<torch::nn::LinearImpl>(i).forward(input));
      }
      return input;
    }
    torch::nn::ModuleList layers;
  };
  run(2, [](const Rank& rank) {
    Accelerator accelerator(with_units({.prefetch = 0}));
    auto net = std::make_shared<TwoWays>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
    EXPECT_THAT(usage_error([&, &model = model] {
                  accelerator.backward(model(ones({2, 6}), rank.rank == 1).sum());
                }),
                AllOf(HasSubstr("the ranks gather parameters in different orders"),
                      HasSubstr("'layers.1'"), HasSubstr("'layers.2'")));
  });
}

TEST_F(ZeroInUnits, NamesAPatternThatFitsNothing) {
  run(2, [](const Rank&) {
    Accelerator accelerator(with_units({.modules = {"blocks.*"}}));
    EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(odd_net()); }), HasSubstr("blocks.*"));
  });
}

TEST_F(ZeroInUnits, HasNoValuesOnceItWasReleased) {
  run(2, [](const Rank&) {
    ZeroLoop loop(zero(3));
    loop.train(0, 2);
    loop.accelerator.free_memory();
    EXPECT_THAT(usage_error([&] { (void)(*loop.model)(data_of_step(0, 2).input); }),
                HasSubstr("this model was released by free_memory()"));
  });
}

}  // namespace
}  // namespace accelerate::test
