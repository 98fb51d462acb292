// When a prepared optimizer steps and when it does not.
#include <accelerate/errors.h>
#include <accelerate/grad_scaler.h>
#include <accelerate/prepared_optimizer.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "compat/replay_actions.h"

namespace accelerate {
namespace {

struct OneParameter {
  explicit OneParameter(OptimizerSurroundings surroundings)
      : parameter(torch::ones({2}).requires_grad_()),
        optimizer(std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.5),
                  std::make_shared<detail::PreparedModels>(), std::move(surroundings)) {}

  double value() const { return parameter[0].item<double>(); }

  at::Tensor parameter;
  PreparedOptimizer optimizer;
};

TEST(PreparedOptimizer, DoesNothingWhileGradientsAccumulate) {
  bool sync_gradients = false;
  OneParameter one({.sync_gradients = [&] { return sync_gradients; }});
  one.parameter.mutable_grad() = torch::ones({2});
  one.optimizer.step();
  one.optimizer.zero_grad();
  EXPECT_EQ(one.value(), 1);
  EXPECT_TRUE(one.parameter.grad().defined());
  sync_gradients = true;
  one.optimizer.step();
  one.optimizer.zero_grad();
  EXPECT_EQ(one.value(), 0.5);
  EXPECT_FALSE(one.parameter.grad().defined());
}

TEST(PreparedOptimizer, SaysWhetherItsStepWasLeftOut) {
  bool sync_gradients = true;
  bool good = false;
  OneParameter one({.sync_gradients = [&] { return sync_gradients; },
                    .run_update =
                        [&](torch::optim::Optimizer&, const std::function<void()>& update) {
                          if (good) update();
                          return good;
                        }});
  PreparedOptimizer copy = one.optimizer;
  one.parameter.mutable_grad() = torch::ones({2});
  EXPECT_FALSE(copy.step_was_skipped());
  one.optimizer.step();
  EXPECT_TRUE(copy.step_was_skipped());
  EXPECT_EQ(one.value(), 1);
  good = true;
  sync_gradients = false;
  one.optimizer.step();  // not due
  EXPECT_TRUE(copy.step_was_skipped());
  sync_gradients = true;
  one.optimizer.step();
  EXPECT_FALSE(copy.step_was_skipped());
  EXPECT_EQ(one.value(), 0.5);
}

TEST(PreparedOptimizer, StepsUnderAGradScaler) {
  GradScaler scaler({.init_scale = 4});
  OneParameter one(
      {.run_update = [&](torch::optim::Optimizer& optimizer, const std::function<void()>& update) {
        const bool updated = scaler.step(optimizer, update);
        scaler.update();
        return updated;
      }});
  scaler.scale(one.parameter.sum()).backward();
  one.optimizer.step();
  EXPECT_EQ(one.value(), 0.5);
  EXPECT_FALSE(one.optimizer.step_was_skipped());
  one.optimizer.zero_grad();
  scaler.scale((one.parameter * std::numeric_limits<double>::infinity()).sum()).backward();
  one.optimizer.step();
  EXPECT_EQ(one.value(), 0.5);
  EXPECT_TRUE(one.optimizer.step_was_skipped());
  EXPECT_EQ(scaler.scale_factor(), 2);
}

TEST(PreparedOptimizer, RefusesAClosureWhereTheLossIsScaled) {
  OneParameter one(
      {.run_update = [](torch::optim::Optimizer&, const std::function<void()>&) { return true; }});
  EXPECT_THAT(
      [&] { one.optimizer.step([] { return torch::ones({}); }); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("a closure computes its loss")));
}

// Layer by layer with a rate of its own: as many groups as layers.
TEST(PreparedOptimizer, UpdatesOfManyGroupsCanBeRecorded) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (int i = 0; i < 30; ++i) {
    at::Tensor parameter = torch::ones({4}).requires_grad_();
    parameter.mutable_grad() = torch::ones_like(parameter).detach();
    groups.emplace_back(std::vector<at::Tensor>{parameter});
  }
  PreparedOptimizer optimizer(std::make_shared<torch::optim::AdamW>(groups),
                              std::make_shared<detail::PreparedModels>());
  const compat::KeptGradients kept;
  optimizer.step();
  compat::ReplayActions actions;
  const compat::ReplayActions::Scope recording(actions);
  EXPECT_NO_THROW(optimizer.step());
}

}  // namespace
}  // namespace accelerate
