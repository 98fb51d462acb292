// Mixed precision, scaled losses, clipping and schedulers through the accelerator, on one and on
// two ranks.
#include <limits>
#include <map>

#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

AcceleratorOptions in_fp16(double init_scale = 8, int64_t steps = 1) {
  AcceleratorOptions options = on_cpu();
  options.mixed_precision = "fp16";
  options.grad_scaler.init_scale = init_scale;
  options.gradient_accumulation.steps = steps;
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
  return options;
}

struct ScaledTrainingOn : Ranks, testing::WithParamInterface<int> {
  void run_ranks(const RankBody& body, const RankOptions& options = {}) {
    run(GetParam(), body, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ScaledTrainingOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

std::shared_ptr<Mlp> fresh_net() {
  torch::manual_seed(7);
  return std::make_shared<Mlp>();
}

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
      Accelerator accelerator(in_fp16(1024, micro_batches));
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const StepData data = data_of_step(0, 12 * rank.world_size);
      const at::Tensor inputs = rows_of(data.input, rank.rank, 12);
      const at::Tensor targets = rows_of(data.target, rank.rank, 12);
      double norm = 0;
      for (int64_t i = 0; i < micro_batches; ++i) {
        const auto micro_batch = accelerator.accumulate(model);
        const int64_t each = 12 / micro_batches;
        accelerator.backward(
            loss_of(model(inputs.narrow(0, i * each, each)), targets.narrow(0, i * each, each)));
        if (accelerator.sync_gradients()) {
          norm = accelerator.clip_grad_norm_(model.parameters(), 0.5).item<double>();
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
      auto values = flat(net->parameters());
      values.push_back(norm);
      return values;
    };
    EXPECT_TRUE(near(trained(4), trained(1), 2e-3));
  });
}

TEST_P(ScaledTrainingOn, ClippingUnscalesFirstAndOnce) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto norms = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      accelerator.backward(loss_of(model(data.input), data.target));
      std::vector<double> result;
      for (const double most : {0.5, 0.5}) {
        result.push_back(accelerator.clip_grad_norm_(model.parameters(), most).item<double>());
      }
      accelerator.clip_grad_value_(model.parameters(), 0.01);
      double largest = 0;
      for (const double value : flat(gradients(model.parameters()))) {
        largest = std::max(largest, std::abs(value));
      }
      EXPECT_LE(largest, 0.0100001);
      optimizer.step();
      return result;
    };
    const auto full = norms(on_cpu());
    EXPECT_GT(full[0], 0.5);
    EXPECT_NEAR(full[1], 0.5, 1e-5);
    EXPECT_TRUE(near(norms(in_fp16(65536)), full, 5e-3));
  });
}

// Each model is clipped before the other has its gradients.
TEST_P(ScaledTrainingOn, ClippingLeavesTheScaledGradientsOfOtherOptimizersAlone) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto trained = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      auto first_net = fresh_net();
      auto second_net = fresh_net();
      torch::optim::SGD first_sgd(first_net->parameters(), 0.1);
      torch::optim::SGD second_sgd(second_net->parameters(), 0.1);
      auto [first, second, first_optimizer, second_optimizer] =
          accelerator.prepare(first_net, second_net, first_sgd, second_sgd);
      std::vector<double> values;
      const auto clip = [&](const auto& model) {
        values.push_back(
            accelerator.clip_grad_norm_(model.parameters(), 100).template item<double>());
      };
      for (int step = 0; step < 2; ++step) {
        accelerator.backward(loss_of(first(data.input), data.target));
        clip(first);
        accelerator.backward(loss_of(second(data.input), data.target));
        clip(second);
        for (auto* optimizer : {&first_optimizer, &second_optimizer}) {
          optimizer->step();
          optimizer->zero_grad();
        }
      }
      for (const double value : flat(first_net->parameters())) values.push_back(value);
      for (const double value : flat(second_net->parameters())) values.push_back(value);
      return values;
    };
    EXPECT_TRUE(near(trained(in_fp16(1024)), trained(on_cpu()), 5e-3));
  });
}

// Both models are named, and only one has gradients so far.
TEST_P(ScaledTrainingOn, GradientsThatComeAfterClippingAreUnscaledByTheStep) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto trained = [&](const AcceleratorOptions& options, bool clips) {
      Accelerator accelerator(options);
      auto first_net = fresh_net();
      auto second_net = fresh_net();
      torch::optim::SGD first_sgd(first_net->parameters(), 0.1);
      torch::optim::SGD second_sgd(second_net->parameters(), 0.1);
      auto [first, second, first_optimizer, second_optimizer] =
          accelerator.prepare(first_net, second_net, first_sgd, second_sgd);
      std::vector<at::Tensor> all = first.parameters();
      for (const at::Tensor& parameter : second.parameters()) all.push_back(parameter);
      for (int step = 0; step < 2; ++step) {
        accelerator.backward(loss_of(first(data.input), data.target));
        if (clips) {
          accelerator.clip_grad_norm_(all, 100);
        } else {
          accelerator.unscale_gradients();
        }
        accelerator.backward(loss_of(second(data.input), data.target));
        for (auto* optimizer : {&first_optimizer, &second_optimizer}) {
          optimizer->step();
          optimizer->zero_grad();
        }
      }
      auto values = flat(first_net->parameters());
      for (const double value : flat(second_net->parameters())) values.push_back(value);
      return values;
    };
    for (const bool clips : {true, false}) {
      EXPECT_TRUE(near(trained(in_fp16(1024), clips), trained(on_cpu(), clips), 5e-3)) << clips;
    }
  });
}

TEST_P(ScaledTrainingOn, OneTensorCanBeClippedAndOneOptimizerUnscaled) {
  run_ranks([](const Rank&) {
    const auto largest = [](const std::shared_ptr<Mlp>& net) {
      return net->second->bias.grad().abs().max().item<double>();
    };
    Accelerator accelerator(in_fp16(1024));
    auto first_net = fresh_net();
    auto second_net = fresh_net();
    torch::optim::SGD first_sgd(first_net->parameters(), 0.1);
    torch::optim::SGD second_sgd(second_net->parameters(), 0.1);
    auto [first, second, first_optimizer, second_optimizer] =
        accelerator.prepare(first_net, second_net, first_sgd, second_sgd);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(first(data.input), data.target) +
                         loss_of(second(data.input), data.target));
    accelerator.unscale_gradients(first_optimizer);
    EXPECT_NEAR(largest(second_net) / largest(first_net), 1024, 1);
    const at::Tensor bias = first_net->second->bias;
    const double norm = accelerator.grad_norm(bias).item<double>();
    EXPECT_EQ(accelerator.clip_grad_norm_(bias, norm / 2).item<double>(), norm);
    EXPECT_NEAR(bias.grad().norm().item<double>(), norm / 2, 1e-5);
    accelerator.clip_grad_value_(bias, norm / 100);
    EXPECT_LE(largest(first_net), norm / 100 + 1e-6);
    Accelerator other(in_fp16(1024));
    EXPECT_THAT(
        usage_error([&, &optimizer = first_optimizer] { other.unscale_gradients(optimizer); }),
        HasSubstr("what prepare() returned"));
  });
}

TEST_P(ScaledTrainingOn, RefusesToClipScaledGradientsThatNoPreparedOptimizerHas) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    EXPECT_THAT(usage_error([&] { accelerator.clip_grad_norm_(model.parameters(), 1.0); }),
                HasSubstr("no prepared optimizer"));
  });
}

TEST_P(ScaledTrainingOn, RefusesToClipWithoutGradientsAndInsideAScaledWindow) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16(8, 2));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto clip = [&, &model = model] { accelerator.clip_grad_norm_(model.parameters(), 1.0); };
    EXPECT_THAT(usage_error(clip), HasSubstr("after Accelerator::backward()"));
    EXPECT_THAT(
        usage_error([&, &model = model] { accelerator.clip_grad_value_(model.parameters(), 1.0); }),
        HasSubstr("after Accelerator::backward()"));
    const StepData data = data_of_step(0, kRows);
    const auto micro_batch = accelerator.accumulate(model);
    accelerator.backward(loss_of(model(data.input), data.target));
    EXPECT_THAT(usage_error(clip), HasSubstr("sync_gradients()"));
  });
}

// A loss of 20,000 tokens, multiplied by their number, would not fit into float16.
TEST_P(ScaledTrainingOn, WeightedLossesOfAWindowStayInTheRangeOfFp16) {
  run_ranks([](const Rank& rank) {
    const auto trained = [&](bool fp16) {
      AcceleratorOptions options = in_fp16(1024, 2);
      if (!fp16) options.mixed_precision = "no";
      Accelerator accelerator(options);
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int i = 0; i < 4; ++i) {
        const auto micro_batch = accelerator.accumulate(model);
        const StepData data = data_of_step(2 * i + rank.rank, kRows);
        accelerator.backward(loss_of(model(data.input), data.target),
                             {.weight = 20'000.0 + 5'000.0 * i + 3'000.0 * rank.rank});
        optimizer.step();
        EXPECT_FALSE(optimizer.step_was_skipped());
        optimizer.zero_grad();
      }
      return flat(net->parameters());
    };
    EXPECT_TRUE(near(trained(true), trained(false), 2e-3));
  });
}

TEST_P(ScaledTrainingOn, RefusesALossOnTopOfUnscaledGradients) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const StepData data = data_of_step(0, kRows);
    const auto backward = [&, &model = model] {
      accelerator.backward(loss_of(model(data.input), data.target));
    };
    backward();
    accelerator.clip_grad_norm_(model.parameters(), 1.0);
    EXPECT_THAT(usage_error(backward), HasSubstr("before the next backward()"));
    // Gradients that are thrown away get no step, and those after them are unscaled once.
    optimizer.zero_grad();
    backward();
    const auto norm = accelerator.clip_grad_norm_(model.parameters(), 1.0).item<double>();
    optimizer.zero_grad();
    backward();
    EXPECT_DOUBLE_EQ(accelerator.clip_grad_norm_(model.parameters(), 1.0).item<double>(), norm);
    optimizer.step();
    EXPECT_FALSE(optimizer.step_was_skipped());
  });
}

// dcgan's way to write it, on the prepared model and on the user's own module.
TEST_P(ScaledTrainingOn, ZeroGradOfAModelThrowsUnscaledGradientsAway) {
  run_ranks([](const Rank&) {
    for (const bool own : {false, true}) {
      for (const bool set_to_none : {true, false}) {
        if (own && !set_to_none) continue;  // refused: nobody can tell it from a change of values
        Accelerator accelerator(in_fp16());
        auto net = fresh_net();
        torch::optim::SGD sgd(net->parameters(), 0.1);
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        const StepData data = data_of_step(0, kRows);
        std::vector<double> norms;
        for (int step = 0; step < 3; ++step) {
          if (own) {
            net->zero_grad(set_to_none);
          } else {
            model.zero_grad(set_to_none);
          }
          accelerator.backward(loss_of(model(data.input), data.target));
          norms.push_back(accelerator.clip_grad_norm_(model.parameters(), 1.0).item<double>());
        }
        EXPECT_EQ(norms[1], norms[0]);
        EXPECT_EQ(norms[2], norms[0]);
        optimizer.step();
        EXPECT_FALSE(optimizer.step_was_skipped());
      }
    }
  });
}

TEST_P(ScaledTrainingOn, LoadStateBetweenClippingAndStepForgetsTheClippedGradients) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    Accelerator accelerator(in_fp16(1024));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto step = [&, &model = model, &optimizer = optimizer](int number) {
      const StepData data = data_of_step(number, kRows);
      accelerator.backward(loss_of(model(data.input), data.target));
      accelerator.clip_grad_norm_(model.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
    };
    step(0);
    accelerator.save_state(folder / "state");
    step(1);
    const auto expected = flat(net->parameters());

    const StepData data = data_of_step(5, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    accelerator.clip_grad_norm_(model.parameters(), 1.0);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(flat(gradients(net->parameters())).size(), 0U);
    step(1);
    EXPECT_EQ(flat(net->parameters()), expected);
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 1024);
  });
}

TEST_P(ScaledTrainingOn, RefusesToSaveUnscaledGradients) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    Accelerator accelerator(in_fp16(1024));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    accelerator.save_state(folder / "state", {.gradients = true});
    accelerator.unscale_gradients();
    EXPECT_THAT(usage_error([&] { accelerator.save_state(folder / "state", {.gradients = true}); }),
                HasSubstr("before they are clipped"));
    optimizer.step();
    accelerator.save_state(folder / "state", {.gradients = true});
  });
}

TEST_P(ScaledTrainingOn, RefusesALossWhileOneOfTwoUnscaledOptimizersHasNotStepped) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto first = fresh_net();
    auto second = fresh_net();
    torch::optim::SGD first_sgd(first->parameters(), 0.1);
    torch::optim::SGD second_sgd(second->parameters(), 0.1);
    auto [one, two, first_optimizer, second_optimizer] =
        accelerator.prepare(first, second, first_sgd, second_sgd);
    const StepData data = data_of_step(0, kRows);
    const auto backward = [&, &one = one, &two = two] {
      accelerator.backward(loss_of(one(data.input), data.target) +
                           loss_of(two(data.input), data.target));
    };
    backward();
    accelerator.unscale_gradients();
    first_optimizer.step();
    first_optimizer.zero_grad();
    EXPECT_THAT(usage_error(backward), HasSubstr("step() or zero_grad() of every optimizer"));
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 8);  // asking changes nothing
    second_optimizer.step();
    EXPECT_TRUE(near(flat(second->parameters()), flat(first->parameters())));
    second_optimizer.zero_grad();
    backward();
  });
}

TEST_P(ScaledTrainingOn, RefusesASecondStepWithTheSameGradients) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    optimizer.step();
    EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                HasSubstr("before the next step()"));
    optimizer.zero_grad();
    optimizer.step();  // without gradients there is nothing to do
  });
}

TEST_P(ScaledTrainingOn, TheNormToLogIsThatOfTheUnscaledGradients) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16(1024));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    const double norm = accelerator.grad_norm(model.parameters()).item<double>();
    EXPECT_LT(norm, 100);
    EXPECT_DOUBLE_EQ(accelerator.clip_grad_norm_(model.parameters(), 1e9).item<double>(), norm);
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
