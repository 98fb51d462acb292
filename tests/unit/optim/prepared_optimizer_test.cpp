// When a prepared optimizer steps and when it does not.
#include <accelerate/errors.h>
#include <accelerate/grad_scaler.h>
#include <accelerate/optimizer_state.h>
#include <accelerate/prepared_optimizer.h>
#include <accelerate/step_capture.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <optional>
#include <sstream>

#include "device/replay_actions.h"
#include "support/training_doubles.h"

namespace accelerate {
namespace {

struct OneParameter {
  explicit OneParameter(std::function<bool()> sync_gradients,
                        test::ScriptedOptimizerHost::RunUpdate run_update = nullptr)
      : parameter(torch::ones({2}).requires_grad_()),
        optimizer(std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.5),
                  nullptr,
                  std::make_shared<test::ScriptedOptimizerHost>(std::move(sync_gradients),
                                                                std::move(run_update))) {}

  double value() const { return parameter[0].item<double>(); }

  at::Tensor parameter;
  PreparedOptimizer optimizer;
};

TEST(PreparedOptimizer, DoesNothingWhileGradientsAccumulate) {
  bool sync_gradients = false;
  OneParameter one([&] { return sync_gradients; });
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
  OneParameter one([&] { return sync_gradients; },
                   [&](torch::optim::Optimizer&, const std::function<void()>& update) {
                     if (good) update();
                     return good;
                   });
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
  OneParameter one(nullptr,
                   [&](torch::optim::Optimizer& optimizer, const std::function<void()>& update) {
                     const bool updated = scaler.step(optimizer, update);
                     scaler.update();
                     return updated;
                   });
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
  OneParameter one(nullptr,
                   [](torch::optim::Optimizer&, const std::function<void()>&) { return true; });
  EXPECT_THAT(
      [&] { one.optimizer.step([] { return torch::ones({}); }); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("a closure computes its loss")));
}

// A training that says what it was asked, and refuses or keeps what a test wants.
struct AskedHost final : OptimizerHost {
  int rank() const override { return 1; }
  int world_size() const override { return 3; }
  bool accumulates() const override { return in_windows; }
  void require_complete(const std::vector<at::Tensor>& parameters) const override {
    if (incomplete) throw UsageError({.what = std::to_string(parameters.size()) + " incomplete"});
  }
  void settle() override { ++settled; }
  bool begin_zero_grad(const torch::optim::Optimizer&,
                       const std::vector<at::Tensor>& parameters) override {
    emptied += parameters.size();
    return !keeps;
  }
  void stepped(const torch::optim::Optimizer&, const std::vector<at::Tensor>& parameters) override {
    used += parameters.size();
  }

  bool in_windows = false, incomplete = false, keeps = false;
  int settled = 0;
  size_t emptied = 0, used = 0;
};

TEST(PreparedOptimizer, AsksTheTrainingThatItIsPartOf) {
  const auto host = std::make_shared<AskedHost>();
  const at::Tensor parameter = torch::ones({2}).requires_grad_();
  PreparedOptimizer optimizer(
      std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.5), nullptr, host);
  parameter.mutable_grad() = torch::ones({2});
  host->incomplete = true;
  EXPECT_THAT([&] { optimizer.step(); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("1 incomplete"), testing::HasSubstr("[rank 1 of 3]"))));
  host->incomplete = false;
  host->in_windows = true;
  EXPECT_THAT([&] { optimizer.step([] { return torch::ones({}); }); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("a closure runs all its backward passes in one micro-batch")));
  EXPECT_EQ(host->used, 0U);
  optimizer.step();
  EXPECT_EQ(host->used, 1U);
  EXPECT_EQ(parameter[0].item<double>(), 0.5);
  host->keeps = true;
  optimizer.zero_grad();
  EXPECT_TRUE(parameter.grad().defined());
  host->keeps = false;
  optimizer.zero_grad();
  EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(host->emptied, 2U);
  EXPECT_EQ(host->settled, 0);
  EXPECT_EQ(optimizer.step_count(), 1);
  EXPECT_EQ(host->settled, 1);
}

// One that trains other tensors than the user gave to the optimizer, and copies them back.
struct InItsPlace final : OptimizerStrategy {
  explicit InItsPlace(torch::optim::Optimizer& optimizer) : OptimizerStrategy(optimizer) {
    user = std::exchange(optimizer.param_groups()[0].params(), {trained});
  }
  std::vector<at::Tensor> parameters() const override { return user; }
  void before_step() override { trained.mutable_grad() = user[0].grad() * 2; }
  void after_step() override {
    const torch::NoGradGuard no_grad;
    user[0].copy_(trained);
    trained.mutable_grad().reset();
  }

  at::Tensor trained = torch::ones({2}).requires_grad_();
  std::vector<at::Tensor> user;
};

TEST(PreparedOptimizer, IsKnownByTheUsersParametersWhateverItsStrategyTrains) {
  const at::Tensor parameter = torch::ones({2}).requires_grad_();
  const auto sgd = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.25);
  PreparedOptimizer optimizer(sgd, std::make_unique<InItsPlace>(*sgd));
  EXPECT_TRUE(optimizer.parameters().at(0).is_same(parameter));
  EXPECT_FALSE(optimizer.param_groups()[0].params().at(0).is_same(parameter));
  parameter.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_EQ(parameter[0].item<double>(), 0.5);
  optimizer.zero_grad();
  EXPECT_FALSE(parameter.grad().defined());
}

// Where losses are scaled, the host divides the gradients that the user's parameters have before a
// strategy makes others of them.
TEST(PreparedOptimizer, TheHostIsToldOfAScaledUpdateBeforeTheStrategyLooksAtGradients) {
  struct HalvingHost final : OptimizerHost {
    bool scales_losses() const override { return scales; }
    void before_update(torch::optim::Optimizer&) override { parameter.mutable_grad() /= 2; }
    at::Tensor parameter = torch::ones({2}).requires_grad_();
    bool scales = true;
  };
  const auto host = std::make_shared<HalvingHost>();
  const at::Tensor parameter = host->parameter;
  const auto sgd = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.25);
  PreparedOptimizer optimizer(sgd, std::make_unique<InItsPlace>(*sgd), host);
  parameter.mutable_grad() = torch::ones({2});
  optimizer.step();  // 1 - 0.25 * (1 / 2 * 2)
  EXPECT_EQ(parameter[0].item<double>(), 0.75);
  host->scales = false;
  parameter.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_EQ(parameter[0].item<double>(), 0.25);
}

// Whether losses are scaled or not: clipping belongs here.
TEST(PreparedOptimizer, TheHostFinishesWholeGradientsBeforeEveryUpdate) {
  struct ClippingHost final : OptimizerHost {
    void finish_gradients(torch::optim::Optimizer&,
                          const std::vector<at::Tensor>& parameters) override {
      for (at::Tensor parameter : parameters) parameter.mutable_grad().clamp_(-1, 1);
    }
  };
  const at::Tensor parameter = torch::ones({2}).requires_grad_();
  const auto sgd = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, 0.25);
  PreparedOptimizer optimizer(sgd, std::make_unique<InItsPlace>(*sgd),
                              std::make_shared<ClippingHost>());
  parameter.mutable_grad() = torch::full({2}, 7.0);
  optimizer.step();  // 1 - 0.25 * (1 * 2)
  EXPECT_EQ(parameter[0].item<double>(), 0.5);
}

// Layer by layer with a rate of its own: as many groups as layers.
TEST(PreparedOptimizer, UpdatesOfManyGroupsCanBeRecorded) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (int i = 0; i < 30; ++i) {
    at::Tensor parameter = torch::ones({4}).requires_grad_();
    parameter.mutable_grad() = torch::ones_like(parameter).detach();
    groups.emplace_back(std::vector<at::Tensor>{parameter});
  }
  PreparedOptimizer optimizer(std::make_shared<torch::optim::AdamW>(groups));
  const device::KeptGradients kept;
  optimizer.step();
  device::ReplayActions actions;
  const device::ReplayActions::Scope recording(actions);
  EXPECT_NO_THROW(optimizer.step());
}

// What an update was recorded with; a CUDA graph has its addresses and numbers.
struct RecordedUpdate {
  explicit RecordedUpdate(std::shared_ptr<torch::optim::Optimizer> recorded)
      : own(std::move(recorded)), optimizer(own) {
    const device::KeptGradients kept;
    optimizer.step();
    const device::ReplayActions::Scope recording(actions);
    optimizer.step();
  }

  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedOptimizer optimizer;
  device::ReplayActions actions;
};

std::vector<at::Tensor> parameter_with_gradient() {
  at::Tensor parameter = torch::ones({4}).requires_grad_();
  parameter.mutable_grad() = torch::ones_like(parameter).detach();
  return {parameter};
}

std::vector<std::shared_ptr<torch::optim::Optimizer>> recordable_optimizers() {
  return {std::make_shared<torch::optim::AdamW>(parameter_with_gradient(), 0.1),
          std::make_shared<torch::optim::Adam>(parameter_with_gradient(),
                                               torch::optim::AdamOptions(0.1).amsgrad(true)),
          std::make_shared<torch::optim::SGD>(parameter_with_gradient(),
                                              torch::optim::SGDOptions(0.1).momentum(0.5))};
}

TEST(PreparedOptimizer, ARecordedUpdateHoldsWhileTheLearningRateMoves) {
  for (const auto& own : recordable_optimizers()) {
    const RecordedUpdate update(own);
    EXPECT_TRUE(update.actions.holds());
    own->param_groups()[0].options().set_lr(0.01);
    EXPECT_TRUE(update.actions.holds());
  }
}

TEST(PreparedOptimizer, ARecordedUpdateDoesNotHoldAfterItsStateWasLoaded) {
  for (const auto& own : recordable_optimizers()) {
    const RecordedUpdate update(own);
    load_optimizer_state(*own, optimizer_state(*own));
    EXPECT_FALSE(update.actions.holds());
  }
  for (const auto& own : recordable_optimizers()) {
    const RecordedUpdate update(own);
    std::stringstream file;
    torch::save(*own, file);
    torch::load(*own, file);
    EXPECT_FALSE(update.actions.holds());
  }
}

TEST(PreparedOptimizer, ARecordedUpdateDoesNotHoldAfterItsGroupsOrOptionsChanged) {
  for (const auto& own : recordable_optimizers()) {
    const RecordedUpdate update(own);
    own->add_param_group(torch::optim::OptimizerParamGroup(parameter_with_gradient()));
    EXPECT_FALSE(update.actions.holds());
  }
  const auto adamw = std::make_shared<torch::optim::AdamW>(parameter_with_gradient(), 0.1);
  const RecordedUpdate update(adamw);
  auto& options = static_cast<torch::optim::AdamWOptions&>(adamw->param_groups()[0].options());
  options.weight_decay(0.5);
  EXPECT_FALSE(update.actions.holds());
}

TEST(StepCapture, ARecordingKeepsTheTensorsThatAModelGivesToIt) {
  std::optional<device::ReplayActions> actions(std::in_place);
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> given, not_recorded;
  {
    const device::ReplayActions::Scope recording(*actions);
    const at::Tensor table = torch::ones({4});
    given = table.storage().getWeakStorageImpl();
    keep_for_replays(table);
  }
  {
    const at::Tensor table = torch::ones({4});
    not_recorded = table.storage().getWeakStorageImpl();
    keep_for_replays(table);
  }
  EXPECT_TRUE(not_recorded->expired());
  EXPECT_FALSE(given->expired());
  actions.reset();
  EXPECT_TRUE(given->expired());
}

TEST(PreparedOptimizer, SaysWhatItIs) {
  torch::optim::SGD sgd({torch::optim::OptimizerParamGroup({at::ones({2})}),
                         torch::optim::OptimizerParamGroup({at::ones({1}), at::ones({1})})},
                        torch::optim::SGDOptions(0.25));
  static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[1].options()).lr(0.5);
  std::ostringstream text;
  text << PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer>(&sgd, [](auto*) {}));
  EXPECT_EQ(text.str(), "torch::optim::SGD, lr 0.25 and 0.5, 3 parameters");
}

}  // namespace
}  // namespace accelerate
