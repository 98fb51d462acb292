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
                AllOf(HasSubstr("the ranks touch parameters in different orders: where rank 0 has "
                                "gathered 'layers.1', rank 1 has gathered 'layers.2'"),
                      HasSubstr("backward")));
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
