// Scaling of losses and gradients.
#include <accelerate/errors.h>
#include <accelerate/grad_scaler.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "support/error_of.h"
#include "support/test_device.h"

namespace accelerate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One parameter of two elements and its optimizer of learning rate 1.
struct Problem {
  at::Tensor weight = torch::zeros({2}, at::TensorOptions(test::test_device()).requires_grad(true));
  torch::optim::SGD sgd{{weight}, 1.0};

  // Gradients as a scaled loss gives them.
  void backward(GradScaler& scaler, double first, double second) {
    sgd.zero_grad();
    const auto slopes = torch::tensor({first, second}, at::kFloat).to(test::test_device());
    scaler.scale((weight * slopes).sum()).backward();
  }
  std::vector<float> weights() const {
    const at::Tensor host = weight.detach().cpu();
    return {host.data_ptr<float>(), host.data_ptr<float>() + 2};
  }
};

TEST(GradScalerTest, ScalesTheLossAndUnscalesTheGradients) {
  GradScaler scaler({.init_scale = 1024});
  Problem problem;
  problem.backward(scaler, 3, -5);
  EXPECT_TRUE(problem.weight.grad().cpu().equal(torch::tensor({3072.0F, -5120.0F})));
  EXPECT_FALSE(scaler.is_unscaled(problem.sgd));
  scaler.unscale_(problem.sgd);
  EXPECT_TRUE(scaler.is_unscaled(problem.sgd));
  EXPECT_TRUE(problem.weight.grad().cpu().equal(torch::tensor({3.0F, -5.0F})));
  EXPECT_TRUE(scaler.step(problem.sgd));
  EXPECT_THAT(problem.weights(), testing::ElementsAre(-3, 5));  // not unscaled twice
  EXPECT_FALSE(scaler.step_was_skipped(problem.sgd));
}

TEST(GradScalerTest, GradientsThatComeAfterUnscaleAreUnscaledByTheStep) {
  GradScaler scaler({.init_scale = 1024});
  Problem first, second;
  first.backward(scaler, 1, 1);
  scaler.unscale_(first.sgd);
  scaler.unscale_(second.sgd);  // it has none yet
  EXPECT_FALSE(scaler.is_unscaled(second.sgd));
  second.backward(scaler, 3, -5);
  EXPECT_TRUE(scaler.step(second.sgd));
  EXPECT_THAT(second.weights(), testing::ElementsAre(-3, 5));
}

TEST(GradScalerTest, AnUpdateThatLooksItselfIsGivenWhatWasFound) {
  GradScaler scaler({.init_scale = 1024});
  Problem problem;
  for (const double slope : {3.0, kInfinity}) {
    problem.backward(scaler, slope, -5);
    float seen = -1;
    const at::Tensor found = scaler.step_on_device(
        problem.sgd, [&](const at::Tensor& found_inf) { seen = found_inf.item<float>(); });
    EXPECT_EQ(seen, slope == kInfinity ? 1.0F : 0.0F);
    EXPECT_EQ(found.item<float>(), seen);
    EXPECT_EQ(scaler.step_was_skipped(problem.sgd), slope == kInfinity);
    EXPECT_THAT(test::error_text<UsageError>([&] { scaler.step_on_device(problem.sgd, {}); }),
                HasSubstr("has already stepped"));
    scaler.update();
  }
  EXPECT_EQ(scaler.scale_factor(), 512);
}

TEST(GradScalerTest, StepUnscalesByItself) {
  GradScaler scaler;
  Problem problem;
  problem.backward(scaler, 3, -5);
  EXPECT_TRUE(scaler.step(problem.sgd));
  EXPECT_THAT(problem.weights(), testing::ElementsAre(-3, 5));
}

TEST(GradScalerTest, SkipsTheStepAndBacksOffWhenAGradientIsNotFinite) {
  GradScaler scaler({.init_scale = 1024});
  Problem problem;
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const double before = scaler.scale_factor();
    problem.backward(scaler, 3, bad);
    EXPECT_FALSE(scaler.step(problem.sgd));
    EXPECT_TRUE(scaler.step_was_skipped(problem.sgd));
    scaler.update();
    EXPECT_TRUE(scaler.step_was_skipped(problem.sgd));
    EXPECT_EQ(scaler.scale_factor(), before / 2);
  }
  EXPECT_THAT(problem.weights(), testing::ElementsAre(0, 0));
  problem.backward(scaler, 3, 4);
  EXPECT_TRUE(scaler.step(problem.sgd));
  EXPECT_FALSE(scaler.step_was_skipped(problem.sgd));
}

TEST(GradScalerTest, GrowsAfterAnIntervalWithoutOverflow) {
  GradScaler scaler({.init_scale = 8, .growth_factor = 4, .growth_interval = 2});
  Problem problem;
  std::vector<double> scales;
  for (int i = 0; i < 5; ++i) {
    problem.backward(scaler, 1, 1);
    scaler.step(problem.sgd);
    scaler.update();
    scales.push_back(scaler.scale_factor());
  }
  EXPECT_THAT(scales, testing::ElementsAre(8, 32, 32, 128, 128));
  EXPECT_EQ(scaler.growth_tracker(), 1);
}

// The scales after updates that overflow (o) or do not (f).
std::vector<double> scales_after(GradScaler& scaler, const std::string& updates) {
  std::vector<double> scales;
  Problem problem;
  for (const char update : updates) {
    problem.backward(scaler, update == 'o' ? kInfinity : 1, 1);
    EXPECT_EQ(scaler.step(problem.sgd), update == 'f');
    scaler.update();
    scales.push_back(scaler.scale_factor());
  }
  return scales;
}

TEST(GradScalerTest, LetsOverflowsPassBeforeItShrinksAndDoesNotShrinkBelowTheLeast) {
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3, .hysteresis = 2, .min_scale = 300});
  // Once it has shrunk, each overflow shrinks it until it grows.
  EXPECT_THAT(scales_after(scaler, "ofooffffo"),
              testing::ElementsAre(1024, 1024, 512, 300, 300, 300, 600, 600, 600));
  EXPECT_THAT(scales_after(scaler, "o"), testing::ElementsAre(300));
}

TEST(GradScalerTest, CountsOverflowsInARowWhereItIsTold) {
  const GradScalerOptions options{.init_scale = 1024, .hysteresis = 2};
  GradScaler all(options);
  EXPECT_EQ(scales_after(all, "ofo").back(), 512);
  GradScalerOptions in_a_row = options;
  in_a_row.overflows_in_a_row = true;
  GradScaler row(in_a_row);
  EXPECT_THAT(scales_after(row, "ofofoo"), testing::ElementsAre(1024, 1024, 1024, 1024, 1024, 512));
}

TEST(GradScalerTest, AFixedScaleStays) {
  GradScaler scaler({.init_scale = 128, .growth_interval = 1, .adapts = false});
  EXPECT_THAT(scales_after(scaler, "foof"), testing::ElementsAre(128, 128, 128, 128));
}

TEST(GradScalerTest, TheOverflowsThatAreStillLetPassAreSaved) {
  const GradScalerOptions options{.init_scale = 1024, .hysteresis = 3};
  GradScaler scaler(options);
  scales_after(scaler, "oo");
  EXPECT_EQ(scaler.state_dict().at("_hysteresis_tracker").as_integer(), 1);
  GradScaler loaded(options);
  loaded.load_state_dict(scaler.state_dict());
  EXPECT_EQ(loaded.state_dict(), scaler.state_dict());
  EXPECT_EQ(scales_after(loaded, "o").back(), 512);
  // One of torch has none.
  GradScaler plain({.init_scale = 1024});
  scales_after(plain, "f");
  loaded.load_state_dict(plain.state_dict());
  EXPECT_THAT(scales_after(loaded, "ooo"), testing::ElementsAre(1024, 1024, 512));
}

TEST(GradScalerTest, EachOptimizerStepsForItselfAndOneOverflowShrinksTheScale) {
  GradScaler scaler({.init_scale = 4});
  Problem fine, overflows;
  fine.backward(scaler, 1, 2);
  overflows.backward(scaler, 1, kInfinity);
  EXPECT_FALSE(scaler.step(overflows.sgd));
  EXPECT_TRUE(scaler.step(fine.sgd));
  scaler.update();
  EXPECT_THAT(fine.weights(), testing::ElementsAre(-1, -2));
  EXPECT_THAT(overflows.weights(), testing::ElementsAre(0, 0));
  EXPECT_TRUE(scaler.step_was_skipped(overflows.sgd));
  EXPECT_FALSE(scaler.step_was_skipped(fine.sgd));
  EXPECT_EQ(scaler.scale_factor(), 2);
}

TEST(GradScalerTest, RunsTheCallersOwnUpdate) {
  GradScaler scaler;
  Problem problem;
  int updates = 0;
  problem.backward(scaler, 1, 1);
  EXPECT_TRUE(scaler.step(problem.sgd, [&] { ++updates; }));
  scaler.update();
  problem.backward(scaler, 1, kInfinity);
  EXPECT_FALSE(scaler.step(problem.sgd, [&] { ++updates; }));
  EXPECT_EQ(updates, 1);
  EXPECT_THAT(problem.weights(), testing::ElementsAre(0, 0));
}

TEST(GradScalerTest, CallsInTheWrongOrderAreRefused) {
  GradScaler scaler;
  Problem problem;
  EXPECT_THAT(
      test::error_text<UsageError>([&] { scaler.unscale_(problem.sgd); }),
      AllOf(HasSubstr("no loss was scaled yet"), HasSubstr("call accelerator.backward(loss)")));
  EXPECT_THAT(
      test::error_text<UsageError>([&] { scaler.step(problem.sgd); }),
      AllOf(HasSubstr("no loss was scaled yet"), HasSubstr("call accelerator.backward(loss)")));
  EXPECT_THAT(test::error_text<UsageError>([&] { scaler.update(); }),
              HasSubstr("no optimizer was stepped since the last update()"));

  problem.backward(scaler, 1, 1);
  scaler.unscale_(problem.sgd);
  EXPECT_THAT(test::error_text<UsageError>([&] { scaler.unscale_(problem.sgd); }),
              HasSubstr("the gradients of this optimizer are already unscaled"));
  scaler.step(problem.sgd);
  EXPECT_THAT(test::error_text<UsageError>([&] { scaler.step(problem.sgd); }),
              HasSubstr("this optimizer has already stepped"));
  EXPECT_THAT(test::error_text<UsageError>([&] { scaler.unscale_(problem.sgd); }),
              HasSubstr("this optimizer has already stepped"));
  EXPECT_THAT(problem.weights(), testing::ElementsAre(-1, -1));
  scaler.update();
  problem.backward(scaler, 1, 1);
  EXPECT_TRUE(scaler.step(problem.sgd));
}

TEST(GradScalerTest, RefusesGradientsInHalfPrecision) {
  GradScaler scaler({.init_scale = 2});
  auto weight = torch::ones({2}, torch::TensorOptions(at::kHalf).requires_grad(true));
  torch::optim::SGD sgd({weight}, 1.0);
  scaler.scale(weight.sum()).backward();
  EXPECT_THAT(test::error_text<UsageError>([&] { scaler.step(sgd); }),
              HasSubstr("gradients in half precision cannot be unscaled"));
  EXPECT_TRUE(weight.grad().cpu().equal(torch::full({2}, 2, at::kHalf)));
}

TEST(GradScalerTest, UnscalesSeveralTypesAndSparseGradientsAndLeavesOutMissingOnes) {
  GradScaler scaler({.init_scale = 8});
  auto doubles = torch::ones({2}, torch::TensorOptions(at::kDouble).requires_grad(true));
  auto table = torch::ones({3, 2}, torch::requires_grad());
  auto unused = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD sgd({doubles, table, unused}, 1.0);
  const auto rows = torch::embedding(table, torch::tensor({2, 2, 0}), -1, false, /*sparse=*/true);
  scaler.scale(doubles.sum() * 3 + rows.sum()).backward();
  ASSERT_TRUE(table.grad().is_sparse());
  scaler.unscale_(sgd);
  EXPECT_TRUE(doubles.grad().cpu().equal(torch::full({2}, 3, at::kDouble)));
  EXPECT_TRUE(
      table.grad().to_dense().equal(torch::tensor({{1.0F, 1.0F}, {0.0F, 0.0F}, {2.0F, 2.0F}})));
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_TRUE(scaler.step(sgd, [] {}));
}

// C++ modules list a shared parameter once for each owner.
TEST(GradScalerTest, UnscalesATiedParameterOnce) {
  GradScaler scaler({.init_scale = 8});
  const auto tied = torch::ones({2}, torch::requires_grad());
  const auto table = torch::ones({3, 2}, torch::requires_grad());
  torch::optim::SGD sgd({tied, tied, table, table}, 1.0);
  const auto rows = torch::embedding(table, torch::tensor({2, 2}), -1, false, /*sparse=*/true);
  scaler.scale(tied.sum() * 3 + rows.sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_TRUE(tied.grad().cpu().equal(torch::full({2}, 3.0F)));
  EXPECT_TRUE(table.grad().to_dense()[2].equal(torch::full({2}, 2.0F)));
}

TEST(GradScalerTest, FindsAnOverflowInTheSumOfSparseRows) {
  GradScaler scaler({.init_scale = 1});
  auto table = torch::zeros({2, 1}, torch::requires_grad());
  torch::optim::SGD sgd({table}, 1.0);
  const auto rows = torch::embedding(table, torch::tensor({1, 1}), -1, false, /*sparse=*/true);
  scaler.scale((rows * 3e38).sum()).backward();  // each finite
  EXPECT_FALSE(scaler.step(sgd));
}

TEST(GradScalerTest, AnOptimizerWithoutGradientsStepsAndCountsAsFine) {
  GradScaler scaler({.growth_interval = 1});
  Problem problem;
  (void)scaler.scale(torch::ones({}));
  EXPECT_TRUE(scaler.step(problem.sgd));
  scaler.update();
  EXPECT_EQ(scaler.scale_factor(), 131072);
}

TEST(GradScalerTest, DisabledPassesEverythingThrough) {
  GradScaler scaler({.growth_factor = 0, .enabled = false});  // factors do not matter then
  Problem problem;
  problem.backward(scaler, 3, kInfinity);
  EXPECT_TRUE(problem.weight.grad().cpu().equal(
      torch::tensor({3.0F, std::numeric_limits<float>::infinity()})));
  scaler.unscale_(problem.sgd);
  scaler.unscale_(problem.sgd);
  EXPECT_TRUE(scaler.step(problem.sgd));
  scaler.update();
  EXPECT_EQ(problem.weights()[0], -3);
  EXPECT_EQ(scaler.scale_factor(), 1);
  EXPECT_EQ(scaler.state_dict().size(), 0);
}

TEST(GradScalerTest, WrongOptionsAreRefused) {
  EXPECT_EQ(test::error_text<UsageError>([] { GradScaler({.growth_factor = 1}); }),
            "UsageError: growth_factor must be more than 1\n"
            "  at   GradScalerOptions\n"
            "  try  leave it out for the default of 2");
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), UsageError);
  EXPECT_THROW(GradScaler({.init_scale = 0}), UsageError);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), UsageError);
  EXPECT_THROW(GradScaler({.hysteresis = 0}), UsageError);
  EXPECT_THROW(GradScaler({.min_scale = -1}), UsageError);
}

TEST(GradScalerTest, ANewScaleTakesEffectAtOnce) {
  GradScaler scaler;
  Problem problem;
  scaler.update(16);
  problem.backward(scaler, 1, 2);
  EXPECT_TRUE(problem.weight.grad().cpu().equal(torch::tensor({16.0F, 32.0F})));
  scaler.step(problem.sgd);
  scaler.update(32);
  EXPECT_EQ(scaler.scale_factor(), 32);
  EXPECT_THROW(scaler.update(-1), UsageError);
}

TEST(GradScalerTest, StateHasTorchsNamesAndContinuesWhereItWasSaved) {
  GradScaler scaler({.init_scale = 8, .growth_factor = 4, .growth_interval = 3});
  Problem problem;
  for (int i = 0; i < 2; ++i) {
    problem.backward(scaler, 1, 1);
    scaler.step(problem.sgd);
    scaler.update();
  }
  EXPECT_EQ(scaler.state_dict(), (StateDict{{"scale", 8.0},
                                            {"growth_factor", 4.0},
                                            {"backoff_factor", 0.5},
                                            {"growth_interval", 3},
                                            {"_growth_tracker", 2}}));

  GradScaler fresh, used;
  Problem other;
  other.backward(used, 1, 1);
  used.unscale_(other.sgd);
  for (GradScaler* loaded : {&fresh, &used}) {
    loaded->load_state_dict(scaler.state_dict());
    other.backward(*loaded, 1, 1);
    EXPECT_TRUE(other.weight.grad().cpu().equal(torch::tensor({8.0F, 8.0F})));
    loaded->step(other.sgd);
    loaded->update();
    EXPECT_EQ(loaded->scale_factor(), 32);
    EXPECT_EQ(loaded->growth_tracker(), 0);
  }
}

TEST(GradScalerTest, AStateThatDoesNotFitIsRefusedAndChangesNothing) {
  GradScaler scaler({.init_scale = 8});
  const auto complaint = [&](const StateDict& state) {
    return test::error_text<CheckpointError>([&] { scaler.load_state_dict(state); });
  };
  EXPECT_THAT(complaint(GradScaler({.enabled = false}).state_dict()), HasSubstr("scale"));
  StateDict state = GradScaler().state_dict();
  state.set("growth_interval", 1.5);
  EXPECT_THROW(scaler.load_state_dict(state), CheckpointError);
  state.set("growth_interval", 0);
  EXPECT_THAT(complaint(state), HasSubstr("is out of range: growth_interval must be 1 or more"));
  state.set("growth_interval", 2000);
  state.set("_growth_tracker", int64_t{1} << 40);
  EXPECT_THAT(complaint(state), HasSubstr("is out of range: _growth_tracker is 1099511627776"));
  EXPECT_EQ(scaler.scale_factor(), 8);
  EXPECT_EQ(scaler.options().growth_interval, 2000);
}

}  // namespace
}  // namespace accelerate
