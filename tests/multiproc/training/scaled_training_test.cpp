// Mixed precision, scaled losses and schedulers through the accelerator, on one and on two ranks.
#include <limits>
#include <map>

#include "multiproc/training/scaled_losses.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct ScaledTrainingOn : ScaledLosses {};
INSTANTIATE_TEST_SUITE_P(Ranks, ScaledTrainingOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

Schedule falling() {
  return lambda_lr([](int64_t step) { return 1.0 / (1.0 + static_cast<double>(step)); });
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_P(ScaledTrainingOn, AnOverflowSkipsTheStepHalvesTheScaleAndHoldsTheScheduler) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(in_fp16(8));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, Scheduler(sgd, falling()));
    const StepData data = data_of_step(0, kRows);
    const auto step = [&, &model = model, &optimizer = optimizer,
                       &scheduler = scheduler](bool overflow) {
      at::Tensor loss = loss_of(model(data.input), data.target);
      if (overflow && rank.rank == rank.world_size - 1) loss = loss * kInfinity;
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
    };
    const auto before = flat(net->parameters());
    step(true);
    EXPECT_TRUE(accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(flat(net->parameters()), before);
    EXPECT_THAT(scheduler.last_lr(), ElementsAre(0.1));
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 4);
    step(false);
    EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
    EXPECT_NE(flat(net->parameters()), before);
    EXPECT_THAT(scheduler.last_lr(), ElementsAre(0.05));
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 4);
  });
}

TEST_P(ScaledTrainingOn, OfTwoOptimizersOnlyTheOneThatOverflowsSkips) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16(8));
    auto good_net = fresh_net();
    auto bad_net = fresh_net();
    torch::optim::SGD good_sgd(good_net->parameters(), 0.1);
    torch::optim::SGD bad_sgd(bad_net->parameters(), 0.1);
    auto [good, bad, good_optimizer, bad_optimizer, good_scheduler, bad_scheduler] =
        accelerator.prepare(good_net, bad_net, good_sgd, bad_sgd, Scheduler(good_sgd, falling()),
                            Scheduler(bad_sgd, falling()));
    const StepData data = data_of_step(0, kRows);
    const auto before = flat(bad_net->parameters());
    accelerator.backward(loss_of(good(data.input), data.target));
    accelerator.backward(loss_of(bad(data.input), data.target) * kInfinity);
    bad_optimizer.step();
    good_optimizer.step();
    bad_scheduler.step();
    good_scheduler.step();
    EXPECT_TRUE(bad_optimizer.step_was_skipped());
    EXPECT_FALSE(good_optimizer.step_was_skipped());
    EXPECT_TRUE(accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(flat(bad_net->parameters()), before);
    EXPECT_NE(flat(good_net->parameters()), before);
    EXPECT_THAT(bad_scheduler.last_lr(), ElementsAre(0.1));
    EXPECT_THAT(good_scheduler.last_lr(), ElementsAre(0.05));
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 4);  // once, though two optimizers stepped
  });
}

// The scale is a power of two, so it leaves no trace in the sum; float16 itself does.
TEST_P(ScaledTrainingOn, AWindowUnderFp16EqualsOneBigBatch) {
  run_ranks([](const Rank& rank) {
    const auto trained = [&](int64_t micro_batches) {
      PreparedMlp mlp(in_fp16(1024, micro_batches));
      const StepData data = data_of_step(0, 12 * rank.world_size);
      const at::Tensor inputs = rows_of(data.input, rank.rank, 12);
      const at::Tensor targets = rows_of(data.target, rank.rank, 12);
      double norm = 0;
      for (int64_t i = 0; i < micro_batches; ++i) {
        const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
        const int64_t each = 12 / micro_batches;
        mlp.accelerator.backward(loss_of(mlp.model(inputs.narrow(0, i * each, each)),
                                         targets.narrow(0, i * each, each)));
        if (mlp.accelerator.sync_gradients()) {
          norm = mlp.clip_norm(0.5);
        }
        mlp.step();
      }
      EXPECT_FALSE(mlp.accelerator.optimizer_step_was_skipped());
      auto values = mlp.values();
      values.push_back(norm);
      return values;
    };
    EXPECT_TRUE(near(trained(4), trained(1), 2e-3));
  });
}

// A loss of 20,000 tokens, multiplied by their number, would not fit into float16.
TEST_P(ScaledTrainingOn, WeightedLossesOfAWindowStayInTheRangeOfFp16) {
  run_ranks([](const Rank& rank) {
    const auto trained = [&](bool fp16) {
      AcceleratorOptions options = in_fp16(1024, 2);
      if (!fp16) options.mixed_precision = "no";
      PreparedMlp mlp(options);
      for (int i = 0; i < 4; ++i) {
        const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
        const StepData data = data_of_step(2 * i + rank.rank, kRows);
        mlp.accelerator.backward(mlp.loss(data),
                                 {.weight = 20'000.0 + 5'000.0 * i + 3'000.0 * rank.rank});
        mlp.optimizer.step();
        EXPECT_FALSE(mlp.optimizer.step_was_skipped());
        mlp.optimizer.zero_grad();
      }
      return mlp.values();
    };
    EXPECT_TRUE(near(trained(true), trained(false), 2e-3));
  });
}

TEST_P(ScaledTrainingOn, AStepBeforeTheFirstLossDoesNothing) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(in_fp16()), other(in_fp16());
    const StepData data = data_of_step(0, kRows);
    mlp.optimizer.step();
    EXPECT_FALSE(mlp.accelerator.optimizer_step_was_skipped());
    for (PreparedMlp* each : {&mlp, &other}) {
      each->backward(data);
      each->optimizer.step();
    }
    EXPECT_EQ(mlp.values(), other.values());
  });
}

TEST_P(ScaledTrainingOn, RefusesASecondStepWithTheSameGradients) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(in_fp16());
    const StepData data = data_of_step(0, kRows);
    mlp.backward(data);
    mlp.optimizer.step();
    EXPECT_THAT(usage_error([&] { mlp.optimizer.step(); }), HasSubstr("before the next step()"));
    mlp.optimizer.zero_grad();
    mlp.optimizer.step();  // without gradients there is nothing to do
  });
}

TEST_P(ScaledTrainingOn, AnOptimizerIsPreparedOnceWhileItsHandleLives) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    {
      auto optimizer = accelerator.prepare(sgd);
      EXPECT_THAT(usage_error([&] { std::ignore = accelerator.prepare(sgd); }),
                  HasSubstr("that prepare() returned"));
    }
    // As in the next fold of a cross validation, where another one has the address.
    auto optimizer = accelerator.prepare(sgd);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    accelerator.unscale_gradients();
    optimizer.step();
    EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
  });
}

TEST_P(ScaledTrainingOn, RefusesToMoveASchedulerWhoseOptimizerWasNotPrepared) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto scheduler = accelerator.prepare(Scheduler(sgd, falling()));
    EXPECT_THAT(usage_error([&] { scheduler.step(); }), HasSubstr("prepare()"));
    auto optimizer = accelerator.prepare(sgd);
    scheduler.step();
    EXPECT_LT(scheduler.last_lr()[0], 0.1);
  });
}

// Results as models give them: a tensor alone, and tensors in a tuple and a map.
struct NestedResultImpl : torch::nn::Module {
  NestedResultImpl() : linear(register_module("linear", torch::nn::Linear(6, 3))) {}
  std::tuple<at::Tensor, std::map<std::string, at::Tensor>> forward(const at::Tensor& input) {
    const at::Tensor output = linear(input);
    inside = output.scalar_type();
    return {output, {{"logits", output}, {"labels", torch::arange(3)}}};
  }

  torch::nn::Linear linear;
  at::ScalarType inside = at::kFloat;
};
TORCH_MODULE(NestedResult);

TEST_P(ScaledTrainingOn, OutputsOfABf16ModelAreFloat32AlsoInNestedResults) {
  run_ranks([](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.mixed_precision = "bf16";
    Accelerator accelerator(options);
    NestedResult net;
    auto model = accelerator.prepare(net);
    const auto [output, named] = model(ones({2, 6}));
    EXPECT_EQ(net->inside, at::kBFloat16);
    EXPECT_EQ(output.scalar_type(), at::kFloat);
    EXPECT_EQ(named.at("logits").scalar_type(), at::kFloat);
    EXPECT_EQ(named.at("labels").scalar_type(), at::kLong);
    EXPECT_EQ(accelerator.scaler(), nullptr);
    accelerator.backward(output.sum() + named.at("logits").sum());
    EXPECT_EQ(net->linear->weight.grad().scalar_type(), at::kFloat);
  });
}

TEST_P(ScaledTrainingOn, PrecisionComesFromTheEnvironmentUnlessItIsGiven) {
  run_ranks(
      [](const Rank&) {
        EXPECT_EQ(Accelerator(on_cpu()).mixed_precision(), MixedPrecision::kBf16);
        AcceleratorOptions options = on_cpu();
        options.mixed_precision = "no";
        EXPECT_EQ(Accelerator(options).mixed_precision(), MixedPrecision::kNo);
      },
      {.environment = {{"ACCELERATE_MIXED_PRECISION", "bf16"}}});
}

}  // namespace
}  // namespace accelerate::test
