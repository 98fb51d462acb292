// Scaled gradients that are clipped, logged or saved before the step, on one and on two ranks.
#include "multiproc/state_folder.h"
#include "multiproc/training/scaled_losses.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct ScaledClippingOn : ScaledLosses {};
INSTANTIATE_TEST_SUITE_P(Ranks, ScaledClippingOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(ScaledClippingOn, ClippingUnscalesFirstAndOnce) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto norms = [&](const AcceleratorOptions& options) {
      PreparedMlp mlp(options);
      mlp.backward(data);
      std::vector<double> result;
      for (const double most : {0.5, 0.5}) {
        result.push_back(mlp.clip_norm(most));
      }
      mlp.accelerator.clip_grad_value_(mlp.model.parameters(), 0.01);
      double largest = 0;
      for (const double value : flat(gradients(mlp.model.parameters()))) {
        largest = std::max(largest, std::abs(value));
      }
      EXPECT_LE(largest, 0.0100001);
      mlp.optimizer.step();
      return result;
    };
    const auto full = norms(on_cpu());
    EXPECT_GT(full[0], 0.5);
    EXPECT_NEAR(full[1], 0.5, 1e-5);
    EXPECT_TRUE(near(norms(in_fp16(65536)), full, 5e-3));
  });
}

// Each model is clipped before the other has its gradients.
TEST_P(ScaledClippingOn, ClippingLeavesTheScaledGradientsOfOtherOptimizersAlone) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto trained = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      PreparedMlp first(accelerator), second(accelerator);
      std::vector<double> values;
      for (int step = 0; step < 2; ++step) {
        first.backward(data);
        values.push_back(first.clip_norm(100));
        second.backward(data);
        values.push_back(second.clip_norm(100));
        first.step();
        second.step();
      }
      for (const double value : first.values()) values.push_back(value);
      for (const double value : second.values()) values.push_back(value);
      return values;
    };
    EXPECT_TRUE(near(trained(in_fp16(1024)), trained(on_cpu()), 5e-3));
  });
}

// Both models are named, and only one has gradients so far.
TEST_P(ScaledClippingOn, GradientsThatComeAfterClippingAreUnscaledByTheStep) {
  run_ranks([](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    const auto trained = [&](const AcceleratorOptions& options, bool clips) {
      Accelerator accelerator(options);
      PreparedMlp first(accelerator), second(accelerator);
      std::vector<at::Tensor> all = first.model.parameters();
      for (const at::Tensor& parameter : second.model.parameters()) all.push_back(parameter);
      for (int step = 0; step < 2; ++step) {
        first.backward(data);
        if (clips) {
          accelerator.clip_grad_norm_(all, 100);
        } else {
          accelerator.unscale_gradients();
        }
        second.backward(data);
        first.step();
        second.step();
      }
      auto values = first.values();
      for (const double value : second.values()) values.push_back(value);
      return values;
    };
    for (const bool clips : {true, false}) {
      EXPECT_TRUE(near(trained(in_fp16(1024), clips), trained(on_cpu(), clips), 5e-3)) << clips;
    }
  });
}

TEST_P(ScaledClippingOn, OneTensorCanBeClippedAndOneOptimizerUnscaled) {
  run_ranks([](const Rank&) {
    const auto largest = [](const PreparedMlp& mlp) {
      return mlp.net->second->bias.grad().abs().max().item<double>();
    };
    Accelerator accelerator(in_fp16(1024));
    PreparedMlp first(accelerator), second(accelerator);
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(first.loss(data) + second.loss(data));
    accelerator.unscale_gradients(first.optimizer);
    EXPECT_NEAR(largest(second) / largest(first), 1024, 1);
    const at::Tensor bias = first.net->second->bias;
    const double norm = accelerator.grad_norm(bias).item<double>();
    EXPECT_EQ(accelerator.clip_grad_norm_(bias, norm / 2).item<double>(), norm);
    EXPECT_NEAR(bias.grad().norm().item<double>(), norm / 2, 1e-5);
    accelerator.clip_grad_value_(bias, norm / 100);
    EXPECT_LE(largest(first), norm / 100 + 1e-6);
    Accelerator other(in_fp16(1024));
    EXPECT_THAT(usage_error([&] { other.unscale_gradients(first.optimizer); }),
                HasSubstr("what prepare() returned"));
  });
}

TEST_P(ScaledClippingOn, RefusesToClipScaledGradientsThatNoPreparedOptimizerHas) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    EXPECT_THAT(usage_error([&] { accelerator.clip_grad_norm_(model.parameters(), 1.0); }),
                HasSubstr("no prepared optimizer"));
  });
}

TEST_P(ScaledClippingOn, RefusesToClipWithoutGradientsAndInsideAScaledWindow) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(in_fp16(8, 2));
    const auto clip = [&] { mlp.accelerator.clip_grad_norm_(mlp.model.parameters(), 1.0); };
    EXPECT_THAT(usage_error(clip), HasSubstr("after Accelerator::backward()"));
    EXPECT_THAT(usage_error([&] { mlp.accelerator.clip_grad_value_(mlp.model.parameters(), 1.0); }),
                HasSubstr("after Accelerator::backward()"));
    const StepData data = data_of_step(0, kRows);
    const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
    mlp.backward(data);
    EXPECT_THAT(usage_error(clip), HasSubstr("sync_gradients()"));
  });
}

TEST_P(ScaledClippingOn, RefusesALossOnTopOfUnscaledGradients) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(in_fp16());
    const StepData data = data_of_step(0, kRows);
    const auto backward = [&] { mlp.backward(data); };
    backward();
    mlp.accelerator.clip_grad_norm_(mlp.model.parameters(), 1.0);
    EXPECT_THAT(usage_error(backward), HasSubstr("before the next backward()"));
    // Gradients that are thrown away get no step, and those after them are unscaled once.
    mlp.optimizer.zero_grad();
    backward();
    const auto norm = mlp.clip_norm(1.0);
    mlp.optimizer.zero_grad();
    backward();
    EXPECT_DOUBLE_EQ(mlp.clip_norm(1.0), norm);
    mlp.optimizer.step();
    EXPECT_FALSE(mlp.optimizer.step_was_skipped());
  });
}

// dcgan's way to write it, on the prepared model and on the user's own module.
TEST_P(ScaledClippingOn, ZeroGradOfAModelThrowsUnscaledGradientsAway) {
  run_ranks([](const Rank&) {
    for (const bool own : {false, true}) {
      for (const bool set_to_none : {true, false}) {
        if (own && !set_to_none) continue;  // refused: nobody can tell it from a change of values
        PreparedMlp mlp(in_fp16());
        const StepData data = data_of_step(0, kRows);
        std::vector<double> norms;
        for (int step = 0; step < 3; ++step) {
          if (own) {
            mlp.net->zero_grad(set_to_none);
          } else {
            mlp.model.zero_grad(set_to_none);
          }
          mlp.backward(data);
          norms.push_back(mlp.clip_norm(1.0));
        }
        EXPECT_EQ(norms[1], norms[0]);
        EXPECT_EQ(norms[2], norms[0]);
        mlp.optimizer.step();
        EXPECT_FALSE(mlp.optimizer.step_was_skipped());
      }
    }
  });
}

TEST_P(ScaledClippingOn, LoadStateBetweenClippingAndStepForgetsTheClippedGradients) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    PreparedMlp mlp(in_fp16(1024));
    const auto step = [&](int number) {
      const StepData data = data_of_step(number, kRows);
      mlp.backward(data);
      mlp.accelerator.clip_grad_norm_(mlp.model.parameters(), 1.0);
      mlp.step();
    };
    step(0);
    mlp.accelerator.save_state(folder / "state");
    step(1);
    const auto expected = mlp.values();

    const StepData data = data_of_step(5, kRows);
    mlp.backward(data);
    mlp.accelerator.clip_grad_norm_(mlp.model.parameters(), 1.0);
    mlp.accelerator.load_state(folder / "state");
    EXPECT_EQ(flat(gradients(mlp.net->parameters())).size(), 0U);
    step(1);
    EXPECT_EQ(mlp.values(), expected);
    EXPECT_EQ(mlp.accelerator.scaler()->scale_factor(), 1024);
  });
}

TEST_P(ScaledClippingOn, RefusesToSaveUnscaledGradients) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    PreparedMlp mlp(in_fp16(1024));
    const StepData data = data_of_step(0, kRows);
    mlp.backward(data);
    mlp.accelerator.save_state(folder / "state", {.gradients = true});
    mlp.accelerator.unscale_gradients();
    EXPECT_THAT(
        usage_error([&] { mlp.accelerator.save_state(folder / "state", {.gradients = true}); }),
        HasSubstr("before they are clipped"));
    mlp.optimizer.step();
    mlp.accelerator.save_state(folder / "state", {.gradients = true});
  });
}

TEST_P(ScaledClippingOn, RefusesALossWhileOneOfTwoUnscaledOptimizersHasNotStepped) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(in_fp16());
    PreparedMlp first(accelerator), second(accelerator);
    const StepData data = data_of_step(0, kRows);
    const auto backward = [&] { accelerator.backward(first.loss(data) + second.loss(data)); };
    backward();
    accelerator.unscale_gradients();
    first.step();
    EXPECT_THAT(usage_error(backward), HasSubstr("step() or zero_grad() of every optimizer"));
    EXPECT_EQ(accelerator.scaler()->scale_factor(), 8);  // asking changes nothing
    second.optimizer.step();
    EXPECT_TRUE(near(second.values(), first.values()));
    second.optimizer.zero_grad();
    backward();
  });
}

TEST_P(ScaledClippingOn, TheNormToLogIsThatOfTheUnscaledGradients) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(in_fp16(1024));
    const StepData data = data_of_step(0, kRows);
    mlp.backward(data);
    const double norm = mlp.accelerator.grad_norm(mlp.model.parameters()).item<double>();
    EXPECT_LT(norm, 100);
    EXPECT_DOUBLE_EQ(mlp.clip_norm(1e9), norm);
  });
}

}  // namespace
}  // namespace accelerate::test
