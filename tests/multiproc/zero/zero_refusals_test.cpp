// What a sharded training does not do says so; a rank that is lost ends all.
#include <csignal>

#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ZeroRefusals : Ranks {};

std::string refusal_of(StrategyOptions strategy, AcceleratorOptions options = on_cpu()) {
  options.strategy = std::move(strategy);
  return usage_error([&] { Accelerator accelerator(options); });
}

TEST_F(ZeroRefusals, OfOptionsNameThem) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank&) {
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 0}),
                  AllOf(HasSubstr("there is no stage 0"), HasSubstr("ZeroOptions::stage")));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 4}), HasSubstr("there is no stage 4"));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 1, .ddp = {.bucket_cap_mb = 0}}),
                  HasSubstr("bucket_cap_mb must be positive"));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 1, .reduce_dtype = at::kBFloat16}),
                  AllOf(HasSubstr("reduce_dtype is of stages 2 and 3"), HasSubstr("comm_hook")));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 2, .reduce_dtype = at::kInt}),
                  HasSubstr("gradients cannot be reduced as Int"));
      AcceleratorOptions flat = on_cpu();
      flat.flat = FlatOptions{};
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 1}, flat),
                  HasSubstr("AcceleratorOptions::flat beside sharding"));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = 1}, on_cpu({.bucket_cap_mb = 3})),
                  HasSubstr("options of DDP beside a strategy that is named"));
    });
  }
}

TEST_F(ZeroRefusals, OfNamesOfFsdpNameThem) {
  run(2, [](const Rank&) {
    const auto name_of = [](const FsdpOptions& fsdp) {
      AcceleratorOptions options = on_cpu();
      options.strategy = fsdp;
      return Accelerator(options).strategy_name();
    };
    EXPECT_EQ(name_of({.sharding_strategy = FsdpSharding::kNoShard}), "ddp");
    EXPECT_EQ(name_of({}), "zero");
    EXPECT_THAT(refusal_of(FsdpOptions{.sharding_strategy = FsdpSharding::kNoShard,
                                       .reduce_dtype = at::kBFloat16}),
                AllOf(HasSubstr("reduce_dtype without shards"), HasSubstr("comm_hook")));
    EXPECT_EQ(name_of({.reshard_after_forward = false}), "zero");
    EXPECT_EQ(name_of({.sharding_strategy = FsdpSharding::kHybridShard}), "zero");
    for (const auto& [sharding, reshards] : {std::pair{FsdpSharding::kFullShard, false},
                                             {FsdpSharding::kShardGradOp, true},
                                             {FsdpSharding::kHybridShard, false},
                                             {FsdpSharding::kNoShard, true},
                                             {FsdpSharding::kNoShard, false}}) {
      EXPECT_THAT(
          refusal_of(FsdpOptions{.sharding_strategy = sharding, .reshard_after_forward = reshards}),
          HasSubstr("contradict each other"));
    }
  });
}

TEST_F(ZeroRefusals, OfOptionsOfAnotherStageNameThem) {
  run(2, [](const Rank&) {
    EXPECT_THAT(refusal_of(ZeroOptions{.stage = 2, .units = {.prefetch = 2}}),
                AllOf(HasSubstr("units are of stage 3"), HasSubstr("ZeroOptions::units")));
    EXPECT_THAT(refusal_of(ZeroOptions{.stage = 3, .units = {.prefetch = -1}}),
                HasSubstr("a number below zero"));
    EXPECT_THAT(
        refusal_of(ZeroOptions{.stage = 3, .units = {.modules = {"a"}, .min_num_params = 9}}),
        HasSubstr("units by name and units by size"));
    for (const int stage : {2, 3}) {
      EXPECT_THAT(
          refusal_of(ZeroOptions{.stage = stage, .ddp = {.comm_hook = {.hook = CommHook::kFp16}}}),
          HasSubstr("ZeroOptions::ddp.comm_hook"));
      EXPECT_THAT(refusal_of(ZeroOptions{.stage = stage, .ddp = {.gradient_as_bucket_view = true}}),
                  HasSubstr("ZeroOptions::ddp.gradient_as_bucket_view"));
    }
  });
}

TEST_F(ZeroRefusals, OfOptionsThatDifferAreToldOnAllRanks) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = zero(1, {.bucket_cap_mb = 1.0 + rank.rank});
    Accelerator accelerator(options);
    EXPECT_THAT(usage_error([&] { accelerator.prepare(odd_net()); }),
                AllOf(HasSubstr("ZeroOptions::ddp.bucket_cap_mb"), HasSubstr("rank 1")));
  });
}

TEST_F(ZeroRefusals, OfOptimizersNameTheParameter) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      Accelerator accelerator(zero(stage));
      auto net = std::make_shared<Mlp>();
      auto model = accelerator.prepare(net);
      torch::optim::LBFGS lbfgs(net->parameters(), 0.1);
      EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(lbfgs); }),
                  HasSubstr("LBFGS looks at all parameters together"));
      SignDescent used({torch::optim::OptimizerParamGroup(net->parameters())},
                       SignDescent::Options(0.1));
      used.state()[net->first->weight.unsafeGetTensorImpl()] =
          std::make_unique<torch::optim::SGDParamState>();
      EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(used); }),
                  AllOf(HasSubstr("keeps something for its parameters already"),
                        HasSubstr("prepare it before its first update")));
      torch::optim::SGD early(torch::nn::Linear(6, 3)->parameters(), 0.1);
      auto optimizer = accelerator.prepare(early);
      early.param_groups()[0].params().push_back(net->first->weight);
      EXPECT_THAT(usage_error([&] { optimizer.step(); }),
                  HasSubstr("'first.weight' came to the optimizer by itself"));
    }
  });
}

TEST_F(ZeroRefusals, OfUpdatesByLocalGradientsComeOnAllRanks) {
  run(2, [](const Rank& rank) {
    for (const int stage : zero_stages()) {
      Accelerator accelerator(zero(stage));
      torch::manual_seed(1);
      auto net = std::make_shared<Mlp>();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      const std::vector<double> before = values_of(net->parameters());
      const at::Tensor input = ones({2, 6}) * (rank.rank + 1);
      {
        const auto local = accelerator.no_sync(model);
        accelerator.backward(model(input).sum());
        EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                    HasSubstr("an update inside of no_sync() or LocalSgd"));
      }
      optimizer.zero_grad();
      model(input).sum().backward();
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                  HasSubstr("call accelerator.backward(loss) instead of loss.backward()"));
      EXPECT_THAT(usage_error([&, &model = model] { (void)model(input); }),
                  HasSubstr("a backward pass bypassed accelerator.backward(loss)"));
      EXPECT_EQ(values_of(net->parameters()), before);
      optimizer.zero_grad();
      accelerator.backward(model(input).sum());
      optimizer.step();
      EXPECT_NE(values_of(net->parameters()), before);
    }
  });
}

TEST_F(ZeroRefusals, OfJoinsAndReleasedModelsSaySo) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      Accelerator accelerator(zero(stage));
      auto net = std::make_shared<Mlp>();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      EXPECT_THAT(
          usage_error([&, &model = model] { accelerator.join_uneven_inputs([] {}, model); }),
          AllOf(HasSubstr("the strategy \"zero\" cannot join ranks"), HasSubstr("even_batches")));
      accelerator.free_memory();
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                  HasSubstr("a model of this optimizer was released"));
    }
  });
}

// In the exchange of gradients, of norms, or of what was updated.
TEST_F(ZeroRefusals, ARankThatIsKilledEndsAllWithItsName) {
  for (const int stage : zero_stages()) {
    spawn(3, [stage](const Rank& rank) {
      ZeroLoop loop(zero(stage, with_unused()), {.max_norm = 0.1});
      for (int step = 0;; ++step) {
        loop.micro_batch(step);
        if (step == 3) rank.reach(1);
      }
    });
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
    kill_rank(1, SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(exit_code_of(rank), kExitCommError);
      EXPECT_THAT(error_of(rank), HasSubstr("rank 1 "));
    }
    EXPECT_LT(elapsed(), kUnreachedTimeout / 2);
  }
}

}  // namespace
}  // namespace accelerate::test
