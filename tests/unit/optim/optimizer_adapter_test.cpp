// A prepared optimizer in the place of a torch::optim::Optimizer.
#include <accelerate/errors.h>
#include <accelerate/optimizer_state.h>
#include <accelerate/prepared_optimizer.h>
#include <accelerate/prepared_scheduler.h>
#include <accelerate/schedulers.h>
#include <accelerate/schedules.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "support/training_doubles.h"

namespace accelerate {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::optim::AdamWOptions;

// As a program of libtorch has it.
double train_as_libtorch(const at::Tensor& parameter, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  const at::Tensor loss = parameter.square().sum();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

template <class Optimizer = torch::optim::AdamW>
struct Adapted {
  explicit Adapted(std::function<bool()> sync_gradients = nullptr)
      : optimizer(own, nullptr,
                  std::make_shared<test::ScriptedOptimizerHost>(std::move(sync_gradients))) {}

  torch::optim::Optimizer& adapter() const { return optimizer; }
  static AdamWOptions& options(torch::optim::Optimizer& of, size_t group = 0) {
    return static_cast<AdamWOptions&>(of.param_groups()[group].options());
  }

  at::Tensor parameter = torch::ones({2}).requires_grad_();
  std::shared_ptr<Optimizer> own =
      std::make_shared<Optimizer>(std::vector<at::Tensor>{parameter}, 0.5);
  PreparedOptimizer optimizer;
};

TEST(OptimizerAdapter, StepsAsThePreparedOptimizerDoes) {
  bool sync_gradients = false;
  Adapted<torch::optim::SGD> adapted([&] { return sync_gradients; });
  train_as_libtorch(adapted.parameter, adapted.optimizer);
  EXPECT_EQ(adapted.parameter[0].item<double>(), 1);
  sync_gradients = true;
  train_as_libtorch(adapted.parameter, adapted.optimizer);
  EXPECT_EQ(adapted.parameter[0].item<double>(), 0);
  EXPECT_EQ(adapted.optimizer.step_count(), 1);
}

TEST(OptimizerAdapter, CallsAClosureAndReturnsItsLoss) {
  const auto minimise = [](const at::Tensor& parameter, torch::optim::Optimizer& optimizer) {
    return optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = parameter.square().sum();
      loss.backward();
      return loss;
    });
  };
  Adapted<torch::optim::LBFGS> adapted, plain;
  EXPECT_EQ(minimise(adapted.parameter, adapted.optimizer).item<double>(), 2);
  minimise(plain.parameter, *plain.own);
  EXPECT_LT(adapted.parameter[0].item<double>(), 0.1);
  EXPECT_TRUE(adapted.parameter.equal(plain.parameter));
}

TEST(OptimizerAdapter, OptionsThatAreChangedOnEitherSideAreTakenOverByTheOther) {
  Adapted<> adapted;
  torch::optim::Optimizer& adapter = adapted.optimizer;
  Adapted<>::options(adapter).lr(0.25);
  train_as_libtorch(adapted.parameter, adapter);
  EXPECT_EQ(Adapted<>::options(*adapted.own).lr(), 0.25);
  Adapted<>::options(*adapted.own).lr(0.125).weight_decay(0.5);
  train_as_libtorch(adapted.parameter, adapter);
  EXPECT_EQ(Adapted<>::options(adapter).lr(), 0.125);
  EXPECT_EQ(Adapted<>::options(adapter).weight_decay(), 0.5);
  // Different fields do not contradict each other.
  Adapted<>::options(adapter).eps(1e-3);
  Adapted<>::options(*adapted.own).lr(0.75);
  adapted.optimizer.step();
  EXPECT_EQ(Adapted<>::options(*adapted.own).eps(), 1e-3);
  EXPECT_EQ(Adapted<>::options(adapter).lr(), 0.75);
  // Nor do equal changes.
  Adapted<>::options(adapter).lr(1);
  Adapted<>::options(*adapted.own).lr(1);
  EXPECT_NO_THROW(adapted.optimizer.step());
}

TEST(OptimizerAdapter, ChangesCanBeTakenOverAtOnce) {
  Adapted<> adapted;
  torch::optim::Optimizer& adapter = adapted.optimizer;
  Adapted<>::options(adapter).lr(0.25);
  adapted.optimizer.agree_groups();
  EXPECT_EQ(Adapted<>::options(*adapted.own).lr(), 0.25);
  adapted.own->param_groups()[0].options().set_lr(0.75);
  adapted.optimizer.agree_groups();
  EXPECT_EQ(Adapted<>::options(adapter).lr(), 0.75);
}

// A rate that is set by hand and a schedule that goes on from it, as with one optimizer of
// libtorch.
TEST(OptimizerAdapter, APreparedSchedulerGoesOnFromARateThatWasSetThroughIt) {
  Adapted<> adapted;
  torch::optim::Optimizer& adapter = adapted.optimizer;
  PreparedScheduler scheduler(Scheduler(adapter, exponential_lr({.gamma = 0.5})), {}, {},
                              std::make_shared<test::ScriptedSchedulerHost>(
                                  nullptr, nullptr, [&] { adapted.optimizer.agree_groups(); }));
  Adapted<>::options(adapter).lr(4);
  scheduler.step();
  EXPECT_EQ(Adapted<>::options(adapter).lr(), 2);
  EXPECT_EQ(Adapted<>::options(*adapted.own).lr(), 2);
}

TEST(OptimizerAdapter, RefusesContradictingChangesAtTheNextStep) {
  for (const bool through_adapter : {false, true}) {
    Adapted<> adapted;
    torch::optim::Optimizer& adapter = adapted.optimizer;
    train_as_libtorch(adapted.parameter, adapter);
    const at::Tensor before = adapted.parameter.detach().clone();
    Adapted<>::options(adapter).lr(0.25);
    Adapted<>::options(*adapted.own).lr(0.125);
    EXPECT_THAT([&] { through_adapter ? adapter.step() : adapted.optimizer.step(); },
                ThrowsMessage<UsageError>(HasSubstr("'lr' of parameter group 0")));
    EXPECT_TRUE(adapted.parameter.equal(before));
    Adapted<>::options(*adapted.own).lr(0.25);
    EXPECT_NO_THROW(adapter.step());
  }
}

TEST(OptimizerAdapter, GroupsComeToTheUsersOptimizerAlone) {
  Adapted<> adapted;
  torch::optim::Optimizer& adapter = adapted.optimizer;
  const at::Tensor more = torch::ones({3}).requires_grad_();
  Adapted<>::options(adapter).lr(0.25);
  adapted.own->add_param_group(torch::optim::OptimizerParamGroup({more}));
  more.mutable_grad() = torch::ones({3});
  adapter.step();
  ASSERT_EQ(adapter.param_groups().size(), 2U);
  EXPECT_EQ(Adapted<>::options(*adapted.own, 0).lr(), 0.25);
  EXPECT_EQ(Adapted<>::options(adapter, 1).lr(), 0.5);
  EXPECT_LT(more[0].item<double>(), 1);
  adapter.zero_grad();
  EXPECT_FALSE(more.grad().defined());
  adapter.add_param_group(torch::optim::OptimizerParamGroup({torch::ones({1}).requires_grad_()}));
  EXPECT_THAT([&] { adapter.step(); },
              ThrowsMessage<UsageError>(HasSubstr("add_param_group() of the optimizer that was "
                                                  "given to prepare()")));
}

TEST(OptimizerAdapter, IsSavedAndLoadedAsTheUsersOptimizer) {
  Adapted<> first, second;
  for (int i = 0; i < 3; ++i) train_as_libtorch(first.parameter, first.optimizer);
  Adapted<>::options(first.optimizer).lr(0.0625);
  std::stringstream file;
  torch::save(first.optimizer, file);
  {
    const torch::NoGradGuard no_grad;
    second.parameter.copy_(first.parameter);
  }
  Adapted<>::options(second.optimizer).lr(0.75);  // what is loaded counts
  torch::load(second.optimizer, file);
  EXPECT_EQ(Adapted<>::options(*second.own).lr(), 0.0625);
  EXPECT_EQ(Adapted<>::options(second.optimizer).lr(), 0.0625);
  train_as_libtorch(first.parameter, first.optimizer);
  train_as_libtorch(second.parameter, second.optimizer);
  EXPECT_TRUE(first.parameter.equal(second.parameter));
  EXPECT_EQ(optimizer_state(first.adapter()).as_dict().at("state").as_dict().entries().size(), 1U);
}

TEST(OptimizerAdapter, SchedulesOfBothLibrariesMoveIt) {
  Adapted<> adapted;
  Scheduler scheduler =
      get_scheduler("linear", adapted.optimizer, {.warmup_steps = 0, .training_steps = 4});
  EXPECT_EQ(&scheduler.optimizer(), adapted.own.get());
  scheduler.step();
  train_as_libtorch(adapted.parameter, adapted.optimizer);
  EXPECT_EQ(Adapted<>::options(adapted.optimizer).lr(), 0.375);
  torch::optim::StepLR halving(adapted.optimizer, 1, 0.5);
  for (int i = 0; i < 2; ++i) halving.step();  // the first one only begins
  train_as_libtorch(adapted.parameter, adapted.optimizer);
  EXPECT_EQ(Adapted<>::options(*adapted.own).lr(), 0.1875);
}

struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  double get_lr() const override { return 1; }
};
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<at::Tensor> parameters, double /*lr*/)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}
  at::Tensor step(LossClosure /*closure*/) override { return {}; }
};

TEST(OptimizerAdapter, RefusesOptionsWhoseFieldsItCannotSee) {
  Adapted<OwnOptimizer> adapted;
  EXPECT_THAT([&] { (void)adapted.adapter(); }, ThrowsMessage<UsageError>(HasSubstr("OwnOptions")));
  EXPECT_NO_THROW(adapted.optimizer.step());
}

}  // namespace
}  // namespace accelerate
