// Training with flat parameters: the loop, and what it gives, stay as they are.
#include "multiproc/strategy/flat_loop.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatTraining : Ranks {};

TEST_F(FlatTraining, InFloat32ItIsThatOfOtherParametersToTheBit) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank&) {
      for (const std::string name : {"adamw", "sgd", "momentum", "adagrad", "rmsprop"}) {
        for (const int64_t steps : {1, 3}) {
          FlatLoop plain(without_flat(steps), name);
          FlatLoop flat_one(with_flat({.dtype = at::kFloat}, steps), name);
          plain.train(0, 6);
          flat_one.train(0, 6);
          EXPECT_TRUE(alike(flat_one.values(), plain.values())) << name;
          EXPECT_TRUE(alike(flat_one.norms, plain.norms)) << name;
          EXPECT_EQ(flat_one.accelerator.strategy_name(), plain.accelerator.strategy_name());
        }
      }
    });
  }
}

TEST_F(FlatTraining, InBfloat16ItFollowsFloat32AndIsTheSameOnAllRanks) {
  run(2, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      FlatLoop exact(without_flat(), name);
      FlatLoop half(flat_in_bf16(), name);
      exact.train(0, 10);
      half.train(0, 10);
      EXPECT_EQ(half.net->first->weight.scalar_type(), at::kBFloat16);
      half.backward(10);
      EXPECT_EQ(half.net->first->weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(near(half.exact(), exact.values(), 0.05)) << name;
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
    FlatLoop loop(options);
    loop.train(0, 1);
    EXPECT_EQ(loop.reducer().ranges(), 4u);
    EXPECT_EQ(loop.reducer().overlapped(), 4u);
    FlatLoop plain(without_flat());
    plain.train(0, 1);
    EXPECT_TRUE(alike(loop.values(), plain.values()));
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

TEST_F(FlatTraining, CapturedStepsExchangeAsTheyAre) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = with_flat({.dtype = at::kFloat}, 2);
    options.ddp.bucket_cap_mb = 1e-5;
    FlatLoop plain(without_flat(2));
    plain.train(0, 6);
    FlatLoop loop(options);
    auto step = loop.accelerator.capture([&](const Sample& batch) {
      const at::Tensor loss = loop.loss(batch);
      loop.accelerator.backward(loss);
      if (loop.accelerator.sync_gradients()) {
        loop.accelerator.clip_grad_norm_(loop.model->parameters(), 0.5);
      }
      loop.step();
      return loss.detach();
    });
    for (int i = 0; i < 6; ++i) step(loop.batch(i));
    EXPECT_TRUE(alike(loop.values(), plain.values()));
    EXPECT_EQ(loop.reducer().overlapped(), 4u);
    // Afterwards passes of their own are seen again.
    loop.model(ones({2, 6})).sum().backward();
    EXPECT_THAT(usage_error([&] { loop.model(ones({2, 6})); }), HasSubstr("this rank alone"));
  });
}

TEST_F(FlatTraining, UnderFp16ItSkipsAndUnscalesAsOthersDo) {
  run(2, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      AcceleratorOptions options = without_flat();
      options.mixed_precision = MixedPrecision::kFp16;
      options.grad_scaler.init_scale = 1e30;  // overflows at first
      options.grad_scaler.backoff_factor = 1e-13;
      FlatLoop plain(options, name);
      options.flat = FlatOptions{.dtype = at::kFloat};
      FlatLoop flat_one(options, name);
      options.flat = FlatOptions{.dtype = at::kHalf};
      FlatLoop half(options, name);
      for (FlatLoop* loop : {&plain, &flat_one, &half}) {
        loop->train(0, 1);
        EXPECT_TRUE(loop->optimizer.step_was_skipped());
        loop->train(1, 9);
      }
      EXPECT_TRUE(alike(flat_one.values(), plain.values())) << name;
      EXPECT_EQ(half.net->first->weight.scalar_type(), at::kHalf);
      EXPECT_TRUE(near(half.exact(), plain.values(), 0.02)) << name;
    }
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
    EXPECT_TRUE(alike({trained(with_flat({.dtype = at::kFloat}))}, {plain}));
    EXPECT_NEAR(trained(flat_in_bf16()), plain, 0.05);
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
    EXPECT_TRUE(alike(trained(with_flat({.dtype = at::kFloat})), trained(without_flat())));
  });
}

TEST_F(FlatTraining, LocalSgdAveragesTheMasters) {
  run(2, [](const Rank&) {
    FlatLoop loop(flat_in_bf16());
    {
      LocalSgd local(loop.accelerator.communicator(), loop.model, {.local_sgd_steps = 2});
      for (int i = 0; i < 2; ++i) {
        loop.backward(i);
        loop.step();
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

}  // namespace
}  // namespace accelerate::test
