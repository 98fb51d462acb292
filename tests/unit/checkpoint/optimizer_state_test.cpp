// The state of optimizers: saved, loaded, and gone on with.
#include "accelerate/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "launch/scratch_folder.h"
#include "optim/optimizer_step.h"
#include "unit/checkpoint/optimizer_state_training.h"

namespace accelerate {
namespace {

using test::Training;
using test::TrainingKind;

class OptimizerState : public ::testing::TestWithParam<TrainingKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerState, ::testing::ValuesIn(test::training_kinds()),
                         [](const auto& info) { return info.param.name; });

void expect_equal(const Training& left, const Training& right) {
  for (size_t i = 0; i < left.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(left.parameters[i], right.parameters[i])) << "parameter " << i;
  }
}

TEST_P(OptimizerState, TrainingGoesOnBitForBitAfterItWasLoadedFromAFile) {
  const test::ScratchFolder folder;
  Training original = GetParam().make(1);
  original.steps(3);
  save_torch_archive(folder.path() / "optimizer.bin", optimizer_state(*original.optimizer));

  Training resumed = GetParam().other(2);
  resumed.steps(1);  // a state that has to go
  test::copy_parameters(original, resumed);
  load_optimizer_state(*resumed.optimizer, load_torch_archive(folder.path() / "optimizer.bin"));
  original.steps(4);
  resumed.steps(4);
  expect_equal(original, resumed);
}

TEST_P(OptimizerState, IsTheSameAfterLoading) {
  Training original = GetParam().make(1);
  original.steps(2);
  Training resumed = GetParam().other(2);
  load_optimizer_state(*resumed.optimizer, optimizer_state(*original.optimizer));
  EXPECT_TRUE(optimizer_state(*resumed.optimizer) == optimizer_state(*original.optimizer));
}

TEST_P(OptimizerState, IsACopyAfterLoading) {
  Training original = GetParam().make(1);
  original.steps(2);
  Training first = GetParam().other(1);
  test::copy_parameters(original, first);
  Training second = GetParam().other(1);
  test::copy_parameters(original, second);
  load_optimizer_state(*first.optimizer, optimizer_state(*original.optimizer));
  load_optimizer_state(*second.optimizer, optimizer_state(*original.optimizer));
  first.steps(2);  // must not move the state of the others
  original.steps(2);
  second.steps(2);
  expect_equal(original, first);
  expect_equal(original, second);
}

TEST_P(OptimizerState, OfAnOptimizerThatHasNotStepped) {
  Training original = GetParam().make(1);
  Training resumed = GetParam().other(1);
  resumed.steps(2);
  test::copy_parameters(original, resumed);
  load_optimizer_state(*resumed.optimizer, optimizer_state(*original.optimizer));
  original.steps(2);
  resumed.steps(2);
  expect_equal(original, resumed);
}

TEST_P(OptimizerState, FusedUpdatesGoOnWithIt) {
  Training original = GetParam().make(1);
  original.steps(2);
  Training resumed = GetParam().other(1);
  test::copy_parameters(original, resumed);
  load_optimizer_state(*resumed.optimizer, optimizer_state(*original.optimizer));
  const auto step_both = [](Training& training) {
    const auto fused = make_optimizer_step(*training.optimizer);
    for (int i = 0; i < 2; ++i) {
      fused->step([&] {
        training.optimizer->zero_grad();
        at::Tensor loss = training.parameters[0].pow(2).sum() + training.parameters[2].sum();
        loss.backward();
        return loss;
      });
    }
  };
  step_both(original);
  step_both(resumed);
  expect_equal(original, resumed);
}

TEST(OptimizerStateLayout, IsPythonsStateDict) {
  Training training = test::make_training<torch::optim::AdamW>(
      torch::optim::AdamWOptions(0.01).betas({0.8, 0.9}), torch::optim::AdamWOptions(0.02), 1);
  training.steps(3);
  const TorchValue state = optimizer_state(
      *training.optimizer,
      {.group_entries = {TorchDict{{"initial_lr", 0.5}}, TorchDict{{"initial_lr", 0.25}}}});
  const TorchDict& dict = state.as_dict();
  ASSERT_EQ(dict.entries()[0].first.as_string(), "state");
  ASSERT_EQ(dict.entries()[1].first.as_string(), "param_groups");
  const TorchDict& first = *&dict.at("state").as_dict().find(0)->as_dict();
  EXPECT_TRUE(first.at("step") == TorchValue(torch::tensor(3.0F)));
  EXPECT_EQ(first.at("exp_avg").as_tensor().sizes(), training.parameters[0].sizes());
  EXPECT_EQ(first.size(), 3U);
  const auto& groups = dict.at("param_groups").as_sequence();
  const TorchDict expected{{"lr", 0.01},
                           {"betas", TorchTuple{{0.8, 0.9}}},
                           {"eps", 1e-8},
                           {"weight_decay", 0.01},
                           {"amsgrad", false},
                           {"maximize", false},
                           {"foreach", {}},
                           {"capturable", false},
                           {"differentiable", false},
                           {"fused", {}},
                           {"decoupled_weight_decay", true},
                           {"initial_lr", 0.5},
                           {"params", TorchValue::List{0, 1}}};
  EXPECT_TRUE(groups[0] == TorchValue(expected));
  EXPECT_TRUE(groups[1].as_dict().at("params") == TorchValue(TorchValue::List{2}));
}

TEST(OptimizerStateLayout, StepsBeyondFloat32AreKeptExactly) {
  Training training = test::make_training<torch::optim::Adam>(torch::optim::AdamOptions(0.01),
                                                              torch::optim::AdamOptions(0.01), 1);
  training.steps(1);
  constexpr int64_t kSteps = (int64_t{1} << 24U) + 1;
  auto& states = training.optimizer->state();
  static_cast<torch::optim::AdamParamState&>(*states.begin()->second).step(kSteps);
  const TorchValue state = optimizer_state(*training.optimizer);
  load_optimizer_state(*training.optimizer, state);
  int64_t largest = 0;
  for (const auto& [parameter, own] : training.optimizer->state()) {
    largest = std::max(largest, static_cast<torch::optim::AdamParamState&>(*own).step());
  }
  EXPECT_EQ(largest, kSteps);
}

TEST(OptimizerStateLoading, TakesOnTypeAndLayoutOfTheParameter) {
  auto parameter =
      torch::zeros({2, 3, 4, 4}, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
  parameter.requires_grad_();
  torch::optim::Adam optimizer({parameter}, torch::optim::AdamOptions(0.1));
  TorchValue state = optimizer_state(optimizer);
  TorchDict dict = state.as_dict();
  const at::Tensor values = torch::randn({2, 3, 4, 4}, at::kFloat);
  dict.set("state",
           TorchDict{{0, TorchDict{{"step", 2}, {"exp_avg", values}, {"exp_avg_sq", values}}}});
  load_optimizer_state(optimizer, dict);
  const auto& own = static_cast<torch::optim::AdamParamState&>(*optimizer.state().begin()->second);
  EXPECT_EQ(own.step(), 2);
  EXPECT_EQ(own.exp_avg().scalar_type(), at::kDouble);
  EXPECT_EQ(own.exp_avg().strides(), parameter.strides());
  EXPECT_FALSE(own.exp_avg().requires_grad());
  EXPECT_TRUE(at::equal(own.exp_avg(), values.to(at::kDouble)));
}

TEST(OptimizerStateLoading, PassesOverWhatOnlyPythonNeeds) {
  const auto parameter = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD optimizer({parameter}, torch::optim::SGDOptions(0.1));
  TorchDict group{{"lr", torch::tensor(0.25)},
                  {"momentum", 0},
                  {"dampening", 0},
                  {"weight_decay", 0},
                  {"nesterov", false},
                  {"maximize", false},
                  {"foreach", true},
                  {"fused", true},
                  {"differentiable", true},
                  {"initial_lr", 0.5},
                  {"param_names", TorchValue::List{"weight"}},
                  {"name", "a name of one's own"},
                  {"new_option", false},
                  {"other_option", TorchValue()},
                  {"params", TorchValue::List{17}}};
  const TorchDict state{{"state", TorchDict{{17, TorchDict{{"momentum_buffer", TorchValue()}}}}},
                        {"param_groups", TorchValue::List{group}}};
  load_optimizer_state(optimizer, state);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST(OptimizerStateLoading, KeepsTheOptionsWhereTheyAre) {
  // Schedulers and users hold on to them.
  Training training = test::make_training<torch::optim::SGD>(torch::optim::SGDOptions(0.1),
                                                             torch::optim::SGDOptions(0.1), 1);
  const auto* options = &training.optimizer->param_groups()[0].options();
  load_optimizer_state(*training.optimizer, optimizer_state(*training.optimizer));
  EXPECT_EQ(&training.optimizer->param_groups()[0].options(), options);
}

}  // namespace
}  // namespace accelerate
