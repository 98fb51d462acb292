// Training with flat parameters: the loop stays as it is.
#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>

#include "multiproc/accumulation.h"
#include "multiproc/state_folder.h"
#include "residency/flat_unit.h"
#include "strategy/flat/flat_model.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct FlatTraining : Ranks {
  StateFolder folder;
};

AcceleratorOptions with_flat(const FlatOptions& flat_options, int64_t steps = 1) {
  AcceleratorOptions options = on_cpu();
  options.gradient_accumulation.steps = steps;
  options.flat = flat_options;
  return options;
}
AcceleratorOptions without_flat(int64_t steps = 1) {
  AcceleratorOptions options = on_cpu();
  options.gradient_accumulation.steps = steps;
  return options;
}
AcceleratorOptions in_bf16(int64_t steps = 1) {
  AcceleratorOptions options = with_flat({}, steps);
  options.mixed_precision = MixedPrecision::kBf16;
  return options;
}

std::shared_ptr<torch::optim::Optimizer> optimizer_named(const std::string& name,
                                                         const std::vector<at::Tensor>& of) {
  using namespace torch::optim;
  if (name == "sgd") return std::make_shared<SGD>(of, SGDOptions(0.1));
  if (name == "momentum") return std::make_shared<SGD>(of, SGDOptions(0.1).momentum(0.9));
  if (name == "adagrad") return std::make_shared<Adagrad>(of, AdagradOptions(0.05));
  if (name == "rmsprop") return std::make_shared<RMSprop>(of, RMSpropOptions(0.01));
  return std::make_shared<AdamW>(of, AdamWOptions(0.02).weight_decay(0.1));
}

// To the bit on CPUs, where both ways make the same calls of libtorch.
testing::AssertionResult same(const std::vector<double>& one, const std::vector<double>& other) {
  return near(one, other, tests_on_gpu() ? 1e-4 : 0);
}

// A net in training, all of whose steps are those of README.md.
struct Loop {
  explicit Loop(const AcceleratorOptions& options, const std::string& name = "adamw")
      : accelerator(options),
        net(fresh_net()),
        own(optimizer_named(name, net->parameters())),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(own)) {}

  void micro_batch(int number) {
    const StepData data = data_of_step(number, accelerator.num_processes() * kRows);
    const int rank = accelerator.process_index();
    const auto window = accelerator.accumulate(model);
    accelerator.backward(loss_of(model(rows_of(data.input, rank)), rows_of(data.target, rank)));
    if (accelerator.sync_gradients()) {
      norms.push_back(accelerator.clip_grad_norm_(model->parameters(), 0.5).item<double>());
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  void train(int first, int last) {
    for (int i = first; i < last; ++i) micro_batch(i);
  }

  const residency::FlatUnit& unit() const {
    return *std::static_pointer_cast<FlatModel>(model.strategy())->unit();
  }
  // The parameters as exactly as they are kept.
  std::vector<double> exact() const {
    std::vector<at::Tensor> masters;
    for (const at::Tensor& parameter : net->parameters()) {
      masters.push_back(model.strategy()->master_of(parameter));
    }
    return flat(masters);
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedModel<Mlp> model;
  PreparedOptimizer optimizer;
  std::vector<double> norms;
};

TEST_F(FlatTraining, InFloat32ItIsThatOfOtherParametersToTheBit) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank&) {
      for (const std::string name : {"adamw", "sgd", "momentum", "adagrad", "rmsprop"}) {
        for (const int64_t steps : {1, 3}) {
          Loop plain(without_flat(steps), name);
          Loop flat_one(with_flat({.dtype = at::kFloat}, steps), name);
          plain.train(0, 6);
          flat_one.train(0, 6);
          EXPECT_TRUE(same(flat(flat_one.net->parameters()), flat(plain.net->parameters())))
              << name;
          EXPECT_TRUE(same(flat_one.norms, plain.norms)) << name;
          EXPECT_EQ(flat_one.accelerator.strategy_name(), plain.accelerator.strategy_name());
        }
      }
    });
  }
}

TEST_F(FlatTraining, InBfloat16ItFollowsFloat32AndIsTheSameOnAllRanks) {
  run(2, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      Loop exact(without_flat(), name);
      Loop half(in_bf16(), name);
      exact.train(0, 10);
      half.train(0, 10);
      EXPECT_EQ(half.net->first->weight.scalar_type(), at::kBFloat16);
      half.accelerator.backward(half.model(ones({2, 6})).sum());
      EXPECT_EQ(half.net->first->weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(near(half.exact(), flat(exact.net->parameters()), 0.05)) << name;
      EXPECT_TRUE(torch::equal(half.unit().values(), half.unit().masters().to(at::kBFloat16)));
      const at::Tensor masters = half.unit().masters().cpu();
      const std::string bytes(static_cast<const char*>(masters.data_ptr()), masters.nbytes());
      const auto all = half.accelerator.communicator().all_gather_bytes(bytes);
      EXPECT_EQ(all[0], all[1]);
    }
  });
}

TEST_F(FlatTraining, GradientsTravelWhileThePassStillRuns) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = with_flat({.dtype = at::kFloat});
    options.ddp.bucket_cap_mb = 1e-5;  // each parameter by itself
    Loop loop(options);
    loop.train(0, 1);
    const auto* reducer = std::static_pointer_cast<FlatModel>(loop.model.strategy())->reducer();
    EXPECT_EQ(reducer->ranges(), 4u);
    EXPECT_EQ(reducer->overlapped(), 4u);
    Loop plain(without_flat());
    plain.train(0, 1);
    EXPECT_TRUE(same(flat(loop.net->parameters()), flat(plain.net->parameters())));
  });
}

// On rank 1 the second model leaves out a layer, so its gradients are complete later than those of
// the first, in another order than on rank 0.
TEST_F(FlatTraining, ModelsThatShareAPassAreAveragedInOneOrder) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = with_flat({.dtype = at::kFloat});
    options.ddp.bucket_cap_mb = 1e-5;  // each parameter by itself
    Accelerator accelerator(options);
    const auto net = [] {
      torch::manual_seed(5);
      return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    };
    const int rank = accelerator.process_index();
    const auto loss = [&](torch::nn::Sequential& first, torch::nn::Sequential& second) {
      const at::Tensor input = at::full({2, 3}, rank + 1.0, accelerator.device());
      const at::Tensor between = first->forward(input);
      return (rank == 0 ? second->forward(between)
                        : second->ptr<torch::nn::LinearImpl>(1)->forward(between))
          .square()
          .sum();
    };
    torch::nn::Sequential plain_first = net(), plain_second = net();
    plain_first->to(accelerator.device());
    plain_second->to(accelerator.device());
    loss(plain_first, plain_second).backward();

    torch::nn::Sequential first = net(), second = net();
    auto [model, other] = accelerator.prepare(first, second);
    accelerator.backward(loss(first, second));
    for (const auto& [own, expected] :
         {std::pair(first, plain_first), std::pair(second, plain_second)}) {
      for (size_t i = 0; i < own->parameters().size(); ++i) {
        at::Tensor mean = expected->parameters()[i].grad();
        if (!mean.defined()) mean = at::zeros_like(expected->parameters()[i]);
        accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
        EXPECT_TRUE(at::allclose(own->parameters()[i].grad(), mean)) << i;
      }
    }
  });
}

TEST_F(FlatTraining, CapturedStepsExchangeAsTheyAre) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = with_flat({.dtype = at::kFloat}, 2);
    options.ddp.bucket_cap_mb = 1e-5;
    Loop plain(without_flat(2));
    plain.train(0, 6);
    Loop loop(options);
    auto step = loop.accelerator.capture([&](const Sample& batch) {
      const at::Tensor loss = loss_of(loop.model(batch.data), batch.target);
      loop.accelerator.backward(loss);
      if (loop.accelerator.sync_gradients()) {
        loop.accelerator.clip_grad_norm_(loop.model->parameters(), 0.5);
      }
      loop.optimizer.step();
      loop.optimizer.zero_grad();
      return loss.detach();
    });
    for (int i = 0; i < 6; ++i) {
      const StepData data = data_of_step(i, 2 * kRows);
      step(Sample{.data = rows_of(data.input, rank.rank),
                  .target = rows_of(data.target, rank.rank)});
    }
    EXPECT_TRUE(same(flat(loop.net->parameters()), flat(plain.net->parameters())));
    const auto* reducer = std::static_pointer_cast<FlatModel>(loop.model.strategy())->reducer();
    EXPECT_EQ(reducer->overlapped(), 4u);
    // Afterwards passes of their own are seen again.
    loop.model(ones({2, 6})).sum().backward();
    EXPECT_THAT(usage_error([&] { loop.model(ones({2, 6})); }), HasSubstr("this rank alone"));
  });
}

TEST_F(FlatTraining, StateIsLoadedInPlaceAfterCapturedSteps) {
  run(1, [&](const Rank&) {
    for (const bool masters : {true, false}) {
      AcceleratorOptions options = in_bf16();
      options.flat->masters = masters;
      Loop loop(options);
      auto step = loop.accelerator.capture([&](const Sample& batch) {
        const at::Tensor loss = loss_of(loop.model(batch.data), batch.target);
        loop.accelerator.backward(loss);
        loop.optimizer.step();
        loop.optimizer.zero_grad();
        return loss.detach();
      });
      const auto train = [&](int first, int last) {
        for (int i = first; i < last; ++i) {
          const StepData data = data_of_step(i, kRows);
          step(Sample{.data = data.input, .target = data.target});
        }
      };
      train(0, 3);
      loop.accelerator.save_state(folder / "state");
      train(3, 6);
      const auto after = loop.exact();
      const void* values = loop.unit().values().data_ptr();
      loop.accelerator.load_state(folder / "state");
      train(3, 6);
      EXPECT_TRUE(same(loop.exact(), after)) << masters;
      EXPECT_EQ(loop.unit().values().data_ptr(), values);
      EXPECT_EQ(loop.net->first->weight.data_ptr(), values);
    }
  });
}

TEST_F(FlatTraining, ParametersThatALossLeavesOutHoldNobodyUp) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(with_flat({.dtype = at::kFloat}));
    torch::manual_seed(3);
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    accelerator.backward(model(ones({2, 6}), rank.rank == 0 ? "a" : "b").sum());
    // Each is the mean of a gradient of 2 and none.
    EXPECT_TRUE(net->a->bias.grad().eq(1).all().item<bool>());
    EXPECT_TRUE(net->b->bias.grad().eq(1).all().item<bool>());
    EXPECT_FALSE(net->c->bias.grad().defined());
  });
}

TEST_F(FlatTraining, AResumedRunIsTheUninterruptedOne) {
  for (const int64_t steps : {1, 2}) {
    for (const bool masters : {true, false}) {
      run(2, [&](const Rank&) {
        const auto name =
            folder / ("state" + std::to_string(steps) + (masters ? "masters" : "bare"));
        AcceleratorOptions options = in_bf16(steps);
        options.flat->masters = masters;
        Loop whole(options);
        whole.train(0, 5);
        whole.accelerator.save_state(name);
        whole.train(5, 10);
        Loop resumed(options);
        resumed.train(20, 21);  // is thrown away
        resumed.accelerator.load_state(name);
        EXPECT_EQ(resumed.optimizer.step_count(), 5 / steps);
        resumed.train(5, 10);
        EXPECT_EQ(resumed.exact(), whole.exact());
        EXPECT_TRUE(same(flat(resumed.net->parameters()), flat(whole.net->parameters())));
      });
    }
  }
}

TEST_F(FlatTraining, ACheckpointHoldsTheMastersAndGoesBothWays) {
  run(1, [&](const Rank&) {
    Loop half(in_bf16());
    half.train(0, 3);
    half.accelerator.save_state(folder / "half");
    Loop plain(without_flat());
    plain.accelerator.load_state(folder / "half");
    EXPECT_EQ(flat(plain.net->parameters()), half.exact());
    EXPECT_EQ(plain.net->first->weight.scalar_type(), at::kFloat);
    plain.train(3, 5);
    plain.accelerator.save_state(folder / "plain");
    half.accelerator.load_state(folder / "plain");
    EXPECT_EQ(half.exact(), flat(plain.net->parameters()));
    EXPECT_TRUE(torch::equal(half.unit().values(), half.unit().masters().to(at::kBFloat16)));
    // As large as what it holds, not as the vectors that it is part of.
    const auto bytes = std::filesystem::file_size(folder / "half" / "optimizer.bin");
    EXPECT_LT(bytes, 20000u);
  });
}

TEST_F(FlatTraining, ZeroGradOfAnyKindIsFollowed) {
  run(1, [](const Rank&) {
    Loop prepared(in_bf16());
    Loop of_module(in_bf16());
    Loop of_own(in_bf16());
    Loop of_conversion(in_bf16());
    for (int i = 0; i < 4; ++i) {
      for (Loop* loop : {&prepared, &of_module, &of_own, &of_conversion}) {
        const StepData data = data_of_step(i, kRows);
        loop->accelerator.backward(loss_of(loop->model(data.input), data.target));
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

TEST_F(FlatTraining, ZeroGradInsideAWindowLosesNothing) {
  run(2, [](const Rank&) {
    Loop quiet(in_bf16(3));
    Loop of_module(in_bf16(3));
    Loop of_own(in_bf16(3));
    for (int i = 0; i < 6; ++i) {
      of_module.net->zero_grad();
      of_own.own->zero_grad();
      for (Loop* loop : {&quiet, &of_module, &of_own}) loop->micro_batch(i);
    }
    EXPECT_EQ(of_module.exact(), quiet.exact());
    EXPECT_EQ(of_own.exact(), quiet.exact());
  });
}

TEST_F(FlatTraining, UnderFp16ItSkipsAndUnscalesAsOthersDo) {
  run(2, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      AcceleratorOptions options = without_flat();
      options.mixed_precision = MixedPrecision::kFp16;
      options.grad_scaler.init_scale = 1e30;  // overflows at first
      options.grad_scaler.backoff_factor = 1e-13;
      Loop plain(options, name);
      options.flat = FlatOptions{.dtype = at::kFloat};
      Loop flat_one(options, name);
      options.flat = FlatOptions{.dtype = at::kHalf};
      Loop half(options, name);
      for (Loop* loop : {&plain, &flat_one, &half}) {
        loop->train(0, 1);
        EXPECT_TRUE(loop->optimizer.step_was_skipped());
        loop->train(1, 9);
      }
      EXPECT_TRUE(same(flat(flat_one.net->parameters()), flat(plain.net->parameters()))) << name;
      EXPECT_EQ(half.net->first->weight.scalar_type(), at::kHalf);
      EXPECT_TRUE(near(half.exact(), flat(plain.net->parameters()), 0.02)) << name;
    }
  });
}

TEST_F(FlatTraining, StepsOfTheUsersOwnOptimizerReachTheModel) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "sgd"}) {
      Loop prepared(in_bf16(), name);
      Loop own(in_bf16(), name);
      for (int i = 0; i < 4; ++i) {
        const StepData data = data_of_step(i, kRows);
        for (Loop* loop : {&prepared, &own}) {
          loop->accelerator.backward(loss_of(loop->model(data.input), data.target));
        }
        prepared.optimizer.step();
        prepared.optimizer.zero_grad();
        own.own->step();
        own.own->zero_grad();
      }
      EXPECT_TRUE(near(own.exact(), prepared.exact(), 1e-5)) << name;
    }
  });
}

// The count of its steps is then below the one that was seen last.
TEST_F(FlatTraining, OwnStepsReachTheModelAfterAnOlderCheckpointWasLoaded) {
  run(1, [&](const Rank&) {
    Loop loop(in_bf16());
    loop.train(0, 1);
    loop.accelerator.save_state(folder / "early");
    loop.train(1, 5);
    loop.accelerator.load_state(folder / "early");
    const StepData data = data_of_step(1, kRows);
    loop.accelerator.backward(loss_of(loop.model(data.input), data.target));
    const at::Tensor before = loop.unit().values().clone();
    loop.own->step();
    loop.model(data.input);
    EXPECT_FALSE(torch::equal(loop.unit().values(), before));
    EXPECT_TRUE(torch::equal(loop.unit().values(), loop.unit().masters().to(at::kBFloat16)));
  });
}

TEST_F(FlatTraining, RanksMustHaveTheSameOptions) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = with_flat({.seed = static_cast<uint64_t>(rank.rank)});
    Accelerator accelerator(options);
    EXPECT_THAT(usage_error([&] { accelerator.prepare(fresh_net()); }), HasSubstr("flat.seed"));
  });
}

TEST_F(FlatTraining, AnOwnStepBeforeItsTimeIsSeen) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = in_bf16();
    options.mixed_precision = MixedPrecision::kFp16;
    options.flat->dtype = at::kHalf;
    Loop loop(options);
    const StepData data = data_of_step(0, kRows);
    loop.accelerator.backward(loss_of(loop.model(data.input), data.target));
    loop.own->step();
    EXPECT_THAT(usage_error([&] { loop.optimizer.step(); }),
                HasSubstr("while its gradients were still"));
  });
}

TEST_F(FlatTraining, OptimizersThatCallAClosureSeeEachOfTheirMoves) {
  run(1, [](const Rank&) {
    const auto trained = [](AcceleratorOptions options) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
      auto [model, optimizer] = accelerator.prepare(net, lbfgs);
      const StepData data = data_of_step(0, kRows);
      for (int i = 0; i < 3; ++i) {
        optimizer.step([&, &model = model, &optimizer = optimizer] {
          optimizer.zero_grad();
          const at::Tensor loss = loss_of(model(data.input), data.target);
          accelerator.backward(loss);
          return loss;
        });
      }
      return loss_of(model(data.input), data.target).template item<double>();
    };
    const double plain = trained(without_flat());
    EXPECT_TRUE(same({trained(with_flat({.dtype = at::kFloat}))}, {plain}));
    EXPECT_NEAR(trained(in_bf16()), plain, 0.05);
  });
}

TEST_F(FlatTraining, PassesThatBypassTheAcceleratorAreRefused) {
  run(2, [](const Rank& rank) {
    const auto pass = [&](Loop& loop) {
      const StepData data = data_of_step(0, 2 * kRows);
      return loss_of(loop.model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank));
    };
    Loop stepping(with_flat({.dtype = at::kFloat}));
    pass(stepping).backward();
    EXPECT_THAT(usage_error([&] { stepping.optimizer.step(); }), HasSubstr("this rank alone"));
    EXPECT_THAT(usage_error([&] { pass(stepping); }), HasSubstr("this rank alone"));
    stepping.optimizer.zero_grad();
    stepping.train(0, 1);
    // Meant to stay here, and brought together by the pass that follows.
    Loop local(with_flat({.dtype = at::kFloat}));
    {
      const auto alone = local.accelerator.no_sync(local.model);
      pass(local).backward();
    }
    local.train(0, 2);
    Loop twice(without_flat());
    {
      const auto alone = twice.accelerator.no_sync(twice.model);
      twice.accelerator.backward(pass(twice));
    }
    twice.train(0, 2);
    EXPECT_TRUE(same(flat(local.net->parameters()), flat(twice.net->parameters())));
  });
}

// libtorch's own words, which follow in the forward pass, do not say what to set.
TEST_F(FlatTraining, InputsThatNeedMixedPrecisionAreForetold) {
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
    EXPECT_THAT(said_of(in_bf16(), fresh_net()), Not(HasSubstr("mixed_precision")));
    EXPECT_THAT(said_of(with_flat({.dtype = at::kFloat}), fresh_net()),
                Not(HasSubstr("mixed_precision")));
    testing::internal::CaptureStderr();
    Accelerator accelerator(with_flat({}));
    auto tokens = accelerator.prepare(
        torch::nn::Sequential(torch::nn::Embedding(5, 4), torch::nn::Linear(4, 2)));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("mixed_precision")));
  });
}

TEST_F(FlatTraining, WhatItDoesNotHaveIsRefused) {
  run(2, [](const Rank&) {
    Loop loop(in_bf16());
    EXPECT_THAT(usage_error([&] { loop.accelerator.join_uneven_inputs([] {}); }),
                HasSubstr("cannot be joined"));
    AcceleratorOptions hooked = in_bf16();
    hooked.ddp.comm_hook.hook = CommHook::kBf16;
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(hooked); }), HasSubstr("hooks"));
    AcceleratorOptions wide = with_flat({.dtype = at::kDouble});
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(wide); }), HasSubstr("Double"));
    AcceleratorOptions bare = with_flat({.dtype = at::kHalf, .masters = false});
    EXPECT_THAT(usage_error([&] { Accelerator accelerator(bare); }), HasSubstr("masters"));
    loop.train(0, 1);
    Accelerator accelerator(in_bf16());
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

TEST_F(FlatTraining, WhatAnOptimizerHasDoneThatWasNotPreparedIsSaved) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(in_bf16());
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

TEST_F(FlatTraining, ValuesThatWereWrittenThroughDataAreTrainedFrom) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    run(2, [type](const Rank&) {
      AcceleratorOptions options = in_bf16();
      options.flat->dtype = type;
      if (type == at::kHalf) options.mixed_precision = MixedPrecision::kFp16;
      for (const std::string name : {"adamw", "sgd", "momentum", "rmsprop"}) {
        for (const bool before_step : {false, true}) {
          const auto trained = [&](bool clamps, bool by_data) {
            Loop loop(options, name);
            for (int i = 0; i < 4; ++i) {
              const StepData data = data_of_step(i, 2 * kRows);
              const int rank = loop.accelerator.process_index();
              loop.accelerator.backward(
                  loss_of(loop.model(rows_of(data.input, rank)), rows_of(data.target, rank)));
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

TEST_F(FlatTraining, ValuesThatACapturedStepWritesThroughDataAreTrainedFrom) {
  run(1, [](const Rank&) {
    const auto trained = [](bool captures) {
      Loop loop(in_bf16());
      const auto of_step = [&](const Sample& batch) {
        const at::Tensor loss = loss_of(loop.model(batch.data), batch.target);
        loop.accelerator.backward(loss);
        loop.optimizer.step();
        clamp_all(*loop.net, /*by_data=*/true);
        loop.optimizer.zero_grad();
        return loss.detach();
      };
      auto captured = loop.accelerator.capture(of_step);
      for (int i = 0; i < 8; ++i) {
        const StepData data = data_of_step(i, kRows);
        const Sample batch{.data = data.input, .target = data.target};
        captures ? captured(batch) : of_step(batch);
      }
      return loop.exact();
    };
    const auto values = trained(true);
    EXPECT_TRUE(same(values, trained(false)));
    for (const double value : values) EXPECT_LE(std::abs(value), 0.0503);
  });
}

TEST_F(FlatTraining, RanksWhoseMastersDifferAreNotSaved) {
  run(2, [&](const Rank& rank) {
    Loop loop(in_bf16());
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

TEST_F(FlatTraining, LocalSgdAveragesTheMasters) {
  run(2, [](const Rank& rank) {
    Loop loop(in_bf16());
    {
      LocalSgd local(loop.accelerator.communicator(), loop.model, {.local_sgd_steps = 2});
      for (int i = 0; i < 2; ++i) {
        const StepData data = data_of_step(i + 10 * rank.rank, kRows);
        loop.accelerator.backward(loss_of(loop.model(data.input), data.target));
        loop.optimizer.step();
        loop.optimizer.zero_grad();
        local.step();
      }
      local.finish();
    }
    at::Tensor mean = loop.unit().masters().clone();
    loop.accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
    EXPECT_TRUE(torch::equal(mean, loop.unit().masters()));
    EXPECT_TRUE(torch::equal(loop.unit().values(), mean.to(at::kBFloat16)));
    EXPECT_FALSE(torch::equal(loop.unit().masters(), mean.to(at::kBFloat16).to(at::kFloat)));
  });
}

TEST_F(FlatTraining, ModelsThatWereReleasedCanBePreparedAgain) {
  run(2, [](const Rank&) {
    Loop loop(in_bf16());
    loop.train(0, 3);
    const auto before = loop.exact();
    loop.accelerator.free_memory();
    EXPECT_EQ(loop.net->first->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(flat(loop.net->parameters()), before);
    EXPECT_THAT(usage_error([&] { loop.optimizer.step(); }), HasSubstr("free_memory"));
    loop.model = loop.accelerator.prepare(loop.net);
    loop.optimizer = loop.accelerator.prepare(loop.own);
    EXPECT_EQ(loop.exact(), before);
    loop.train(3, 6);
    Loop whole(in_bf16());
    whole.train(0, 6);
    EXPECT_EQ(loop.exact(), whole.exact());
  });
}

TEST_F(FlatTraining, ScheduledRatesAreFollowed) {
  run(1, [](const Rank&) {
    const auto trained = [](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      torch::optim::AdamW adamw(net->parameters(), 0.02);
      auto linear = get_scheduler("linear", adamw, {.warmup_steps = 2, .training_steps = 8});
      auto [model, optimizer, schedule] = accelerator.prepare(net, adamw, linear);
      for (int i = 0; i < 6; ++i) {
        const StepData data = data_of_step(i, kRows);
        accelerator.backward(loss_of(model(data.input), data.target));
        optimizer.step();
        schedule.step();
        optimizer.zero_grad();
      }
      return flat(net->parameters());
    };
    EXPECT_TRUE(same(trained(with_flat({.dtype = at::kFloat})), trained(without_flat())));
  });
}

TEST_F(FlatTraining, MastersThatWereWrittenToBecomeTheParameters) {
  run(1, [](const Rank&) {
    Loop loop(in_bf16());
    {
      const torch::NoGradGuard no_grad;
      loop.model.strategy()->master_of(loop.net->second->bias).fill_(0.123);
    }
    loop.model.strategy()->masters_changed();
    EXPECT_TRUE(loop.net->second->bias.eq(at::BFloat16(0.123F)).all().item<bool>());
    EXPECT_NEAR(loop.exact().back(), 0.123, 1e-7);
  });
}

// What zero_grad() of a model calls, and that of an optimizer.
TEST_F(FlatTraining, DroppedGradientsAreGoneAndTheirPlacesZeros) {
  run(1, [](const Rank&) {
    Loop loop(in_bf16());
    for (const bool of_model : {true, false}) {
      const StepData data = data_of_step(0, kRows);
      loop.accelerator.backward(loss_of(loop.model(data.input), data.target));
      EXPECT_GT(loop.unit().gradient().abs().sum().item<float>(), 0);
      const at::Tensor part = loop.net->first->weight.grad();
      if (of_model) {
        loop.model.zero_grad();
      } else {
        loop.optimizer.strategy().drop_gradients(true);
      }
      EXPECT_EQ(loop.unit().gradient().abs().sum().item<float>(), 0);
      EXPECT_FALSE(loop.net->first->weight.grad().defined());
      loop.accelerator.backward(loss_of(loop.model(data.input), data.target));
      EXPECT_TRUE(loop.net->first->weight.grad().is_same(part));
    }
  });
}

TEST_F(FlatTraining, ConvertedOptimizersKnowTheUsersParameters) {
  run(1, [](const Rank&) {
    Loop loop(in_bf16());
    const torch::optim::Optimizer& converted = loop.optimizer;
    EXPECT_TRUE(converted.param_groups()[0].params()[0].is_same(loop.net->parameters()[0]));
    EXPECT_TRUE(loop.optimizer.parameters()[0].is_same(loop.net->parameters()[0]));
    EXPECT_EQ(loop.own->param_groups()[0].params()[0].scalar_type(), at::kFloat);
  });
}

}  // namespace
}  // namespace accelerate::test
