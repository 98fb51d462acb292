// A prepared optimizer makes the updates that torch::optim itself makes, on the same state.
#include "optim/optimizer_step.h"

#include <accelerate/prepared_optimizer.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "support/test_device.h"

namespace accelerate {
namespace {

using testing::HasSubstr;
using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(const Parameters&)>;
using SetGradients = std::function<void(Parameters&, int step)>;

PreparedOptimizer prepared(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  return PreparedOptimizer(optimizer);
}

template <class Optimizer, class Options>
MakeOptimizer maker(Options options) {
  return [options](const Parameters& parameters) -> std::shared_ptr<torch::optim::Optimizer> {
    return std::make_shared<Optimizer>(parameters, options);
  };
}

// All families, each with an option that needs more state.
std::vector<std::pair<std::string, MakeOptimizer>> all_families() {
  using namespace torch::optim;
  return {{"SGD", maker<SGD>(SGDOptions(0.1))},
          {"SGD with momentum", maker<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
          {"SGD with dampening", maker<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5))},
          {"Adam", maker<Adam>(AdamOptions(0.01).weight_decay(0.1))},
          {"Adam with amsgrad", maker<Adam>(AdamOptions(0.01).amsgrad(true))},
          {"AdamW", maker<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
          {"Adagrad", maker<Adagrad>(AdagradOptions(0.1).lr_decay(0.1))},
          {"RMSprop", maker<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true))}};
}

Parameters copies(const Parameters& parameters) {
  Parameters all;
  for (const at::Tensor& parameter : parameters) {
    all.push_back(parameter.detach()
                      .clone(at::MemoryFormat::Preserve)
                      .to(test::test_device())
                      .requires_grad_());
  }
  return all;
}

void random_gradients(Parameters& parameters, int step) {
  torch::manual_seed(100 + step);
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::randn_like(parameter.detach());
  }
}

void expect_close(const Parameters& actual, const Parameters& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    // The fused kernels of a GPU round otherwise than operators one after the other.
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-5, test::tests_on_gpu() ? 1e-5 : 1e-6))
        << "parameter " << i << "\n"
        << actual[i] << "\ninstead of\n"
        << expected[i];
  }
}

// Equal parameters, updated by the prepared optimizer and by torch alone.
struct Twins {
  explicit Twins(const Parameters& start) : own(copies(start)), plain(copies(start)) {}

  void step(PreparedOptimizer& own_optimizer, torch::optim::Optimizer& plain_optimizer, int step,
            const SetGradients& set_gradients = random_gradients) {
    set_gradients(own, step);
    own_optimizer.step();
    set_gradients(plain, step);
    plain_optimizer.step();
  }
  void expect_equal() const { expect_close(own, plain); }

  Parameters own, plain;
};

// Five updates by both.
void expect_updates_of_torch(const MakeOptimizer& make, const Parameters& start,
                             const SetGradients& set_gradients) {
  Twins twins(start);
  auto own_optimizer = prepared(make(twins.own));
  auto plain_optimizer = make(twins.plain);
  for (int step = 0; step < 5; ++step) {
    twins.step(own_optimizer, *plain_optimizer, step, set_gradients);
  }
  twins.expect_equal();
}

void expect_updates_of_torch_in_all_families(const Parameters& start,
                                             const SetGradients& set_gradients) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    expect_updates_of_torch(make, start, set_gradients);
  }
}

Parameters small_parameters() {
  torch::manual_seed(1);
  return {torch::randn({4, 3}), torch::randn({5}), torch::randn({2, 3, 4})};
}

TEST(OptimizerStep, MakesTheUpdatesOfTorch) {
  expect_updates_of_torch_in_all_families(small_parameters(), random_gradients);
}

// As GradScaler finds it on a GPU, where the host does not look.
TEST(OptimizerStep, OfAdamAndSgdLooksOnTheDeviceWhetherToBeMade) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    Twins twins(small_parameters());
    auto optimizer = make(twins.own);
    auto expected = make(twins.plain);
    const auto step = make_optimizer_step(*optimizer);
    const bool looks = name.starts_with("Adam") || name.starts_with("SGD");
    EXPECT_EQ(step->can_look_on_device(), looks);
    if (!looks) continue;
    for (int i = 0; i < 6; ++i) {
      const bool skipped = i == 0 || i == 3;
      random_gradients(twins.own, i);
      random_gradients(twins.plain, i);
      step->step_unless(torch::full({}, skipped ? 1.0 : 0.0, test::test_device()));
      step->ended(skipped);
      if (!skipped) expected->step();
    }
    twins.expect_equal();
  }
}

TEST(OptimizerStep, IsChosenByTheTypeOfTheOptimizer) {
  const auto name_for = [](const MakeOptimizer& make) {
    return std::string(make_optimizer_step(*make(copies(small_parameters())))->name());
  };
  for (const auto& [name, make] : all_families()) {
    EXPECT_EQ(name_for(make), name == "RMSprop" ? "foreach" : "fused") << name;
  }
  EXPECT_EQ(name_for(maker<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1))), "own");
}

struct CountingSgd : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    ++steps;
    return SGD::step(closure);
  }
  int steps = 0;
};

TEST(OptimizerStep, LeavesDerivedOptimizersTheirOwnStep) {
  Parameters parameters = copies(small_parameters());
  auto optimizer = std::make_shared<CountingSgd>(parameters, torch::optim::SGDOptions(0.1));
  auto own = prepared(optimizer);
  random_gradients(parameters, 0);
  own.step();
  EXPECT_EQ(optimizer->steps, 1);
}

TEST(OptimizerStep, TakesParametersOfSeveralTypes) {
  torch::manual_seed(1);
  expect_updates_of_torch_in_all_families(
      {torch::randn({7}), torch::randn({3}, at::kDouble), torch::randn({4}), torch::rand({2})},
      random_gradients);
}

TEST(OptimizerStep, TakesHalfPrecisionParameters) {
  Parameters start = {torch::ones({8}, at::kBFloat16)};
  Parameters own = copies(start);
  auto optimizer =
      prepared(std::make_shared<torch::optim::AdamW>(own, torch::optim::AdamWOptions(0.5)));
  own[0].mutable_grad() = torch::ones_like(own[0].detach());
  optimizer.step();
  EXPECT_NEAR(own[0][0].item<float>(), 0.5, 0.01);
}

TEST(OptimizerStep, LeavesComplexParametersToTorch) {
  torch::manual_seed(1);
  const Parameters start = {torch::randn({3}), torch::randn({3}, at::kComplexFloat)};
  expect_updates_of_torch(maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)),
                          start, random_gradients);
}

TEST(OptimizerStep, LeavesSparseGradientsToTorch) {
  const SetGradients one_sparse = [](Parameters& parameters, int step) {
    random_gradients(parameters, step);
    parameters[1].mutable_grad() =
        torch::sparse_coo_tensor(torch::tensor({{0, 2}}), torch::randn({2, 2}),
                                 parameters[1].sizes())
            .to(test::test_device());
  };
  const Parameters start = {torch::ones({4}), torch::ones({3, 2}), torch::ones({2})};
  expect_updates_of_torch(maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)), start,
                          one_sparse);
  expect_updates_of_torch(maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1)), start,
                          one_sparse);
}

TEST(OptimizerStep, SaysWhatTorchSaysOfSparseGradientsThatItRefuses) {
  Parameters parameters = copies({torch::ones({4}), torch::ones({3, 2})});
  auto optimizer = prepared(std::make_shared<torch::optim::Adam>(parameters));
  random_gradients(parameters, 0);
  parameters[1].mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{0, 2}}), torch::randn({2, 2}), {3, 2});
  EXPECT_THAT([&] { optimizer.step(); },
              testing::ThrowsMessage<c10::Error>(HasSubstr("does not support sparse gradients")));
  EXPECT_TRUE(parameters[0].grad().defined());
}

TEST(OptimizerStep, TakesGradientsAndParametersOfAnyLayout) {
  torch::manual_seed(1);
  const Parameters start = {torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
                            torch::randn({4, 6}), torch::randn({6, 4}).t(), torch::randn({}),
                            torch::randn({3, 1})};
  const SetGradients other_layout = [](Parameters& parameters, int step) {
    random_gradients(parameters, step);
    at::Tensor& first = parameters[0].mutable_grad();
    first = first.contiguous(at::MemoryFormat::Contiguous);
    at::Tensor& second = parameters[1].mutable_grad();
    second = second.t().contiguous().t();
    at::Tensor& last = parameters[4].mutable_grad();
    last = last.t().contiguous().t();  // strides (1, 3) instead of (1, 1)
  };
  expect_updates_of_torch_in_all_families(start, other_layout);
}

TEST(OptimizerStep, TakesParametersThatAreViews) {
  torch::manual_seed(1);
  const at::Tensor table = torch::randn({4, 8});
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    const at::Tensor own_table = table.clone();
    const at::Tensor plain_table = table.clone();
    Parameters own = {own_table.slice(1, 0, 4).detach().requires_grad_()};
    Parameters plain = {plain_table.slice(1, 0, 4).detach().requires_grad_()};
    auto own_optimizer = prepared(make(own));
    auto plain_optimizer = make(plain);
    for (int step = 0; step < 3; ++step) {
      random_gradients(own, step);
      own_optimizer.step();
      random_gradients(plain, step);
      plain_optimizer->step();
    }
    expect_close({own_table}, {plain_table});
  }
}

TEST(OptimizerStep, TakesGradientsOfAnotherType) {
  const SetGradients doubles = [](Parameters& parameters, int step) {
    random_gradients(parameters, step);
    at::Tensor& gradient = parameters[0].mutable_grad();
    gradient = gradient.to(at::kDouble);
  };
  expect_updates_of_torch(maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)),
                          small_parameters(), doubles);
}

TEST(OptimizerStep, LeavesParametersWithoutGradientAlone) {
  expect_updates_of_torch_in_all_families(small_parameters(), [](Parameters& parameters, int step) {
    random_gradients(parameters, step);
    if (step % 2 == 0) parameters[1].mutable_grad().reset();
    if (step < 3) parameters[2].mutable_grad().reset();  // its state comes late
  });
}

// By which autograd refuses a graph whose values an update has changed.
TEST(OptimizerStep, CountsAsAWriteToWhatItUpdates) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    const Parameters own = copies({torch::ones({3, 2}), torch::ones({2})});
    auto optimizer = prepared(make(own));
    const at::Tensor output = (own[0] * own[0]).sum();
    output.backward({}, /*keep_graph=*/true);
    const auto other = own[1]._version();
    optimizer.step();
    EXPECT_EQ(own[1]._version(), other);
    EXPECT_THROW(output.backward(), c10::Error);
  }
}

TEST(OptimizerStep, MakesNoStateWithoutGradient) {
  for (const auto& [name, make] : all_families()) {
    if (name == "Adagrad") continue;  // torch makes its state in the constructor
    Parameters parameters = copies(small_parameters());
    const auto optimizer = make(parameters);
    auto own = prepared(optimizer);
    own.step();
    EXPECT_TRUE(optimizer->state().empty()) << name;
  }
}

TEST(OptimizerStep, UpdatesAParameterThatIsListedTwiceTwice) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    Twins twins(small_parameters());
    twins.own.push_back(twins.own[0]);
    twins.plain.push_back(twins.plain[0]);
    auto own_optimizer = prepared(make(twins.own));
    auto plain_optimizer = make(twins.plain);
    for (int step = 0; step < 3; ++step) {
      twins.step(own_optimizer, *plain_optimizer, step);
    }
    twins.expect_equal();
  }
}

// The gradient of the last parameter cannot be used: all of the step is called off.
TEST(OptimizerStep, ThatThrowsLeavesNoTrace) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    Twins twins(small_parameters());
    auto own_optimizer = prepared(make(twins.own));
    auto plain_optimizer = make(twins.plain);
    for (int step = 0; step < 3; ++step) {
      random_gradients(twins.own, step);
      twins.own.back().mutable_grad() = torch::ones({7}, test::test_device());
      EXPECT_THROW(own_optimizer.step(), c10::Error);
      twins.step(own_optimizer, *plain_optimizer, step);
    }
    twins.expect_equal();
  }
}

TEST(OptimizerStep, TakesMomentumThatIsTurnedOnLate) {
  Twins twins(small_parameters());
  const auto own_sgd = std::make_shared<torch::optim::SGD>(twins.own, 0.1);
  torch::optim::SGD plain_sgd(twins.plain, 0.1);
  auto optimizer = prepared(own_sgd);
  for (int step = 0; step < 4; ++step) {
    for (torch::optim::SGD* sgd : {own_sgd.get(), &plain_sgd}) {
      auto& options = sgd->param_groups()[0].options();
      if (step == 2) static_cast<torch::optim::SGDOptions&>(options).momentum(0.9);
    }
    twins.step(optimizer, plain_sgd, step);
  }
  twins.expect_equal();
}

TEST(OptimizerStep, TakesGroupsThatAreAddedLater) {
  Twins twins(small_parameters());
  const Parameters own_late = copies({torch::ones({3})});
  const Parameters plain_late = copies({torch::ones({3})});
  const auto own_adam = std::make_shared<torch::optim::AdamW>(twins.own, 0.1);
  torch::optim::AdamW plain_adam(twins.plain, 0.1);
  auto optimizer = prepared(own_adam);
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      own_adam->add_param_group(torch::optim::OptimizerParamGroup(
          own_late, std::make_unique<torch::optim::AdamWOptions>(0.5)));
      plain_adam.add_param_group(torch::optim::OptimizerParamGroup(
          plain_late, std::make_unique<torch::optim::AdamWOptions>(0.5)));
      twins.own.push_back(own_late[0]);
      twins.plain.push_back(plain_late[0]);
    }
    twins.step(optimizer, plain_adam, step);
  }
  twins.expect_equal();
}

// The state is torch's own: torch alone saves it, loads it and goes on with it, and back.
TEST(OptimizerStep, SharesItsStateWithTorch) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    Parameters own = copies(small_parameters());
    Parameters plain = copies(small_parameters());
    const auto own_optimizer = make(own);
    auto plain_optimizer = make(plain);
    auto step = prepared(own_optimizer);
    for (int count = 0; count < 6; ++count) {
      random_gradients(own, count);
      if (count % 2 == 0) {
        step.step();
      } else {
        own_optimizer->step();
      }
      random_gradients(plain, count);
      plain_optimizer->step();
    }
    expect_close(own, plain);

    std::stringstream archive;
    torch::save(*own_optimizer, archive);
    Parameters loaded = copies(own);
    const auto loaded_optimizer = make(loaded);
    torch::load(*loaded_optimizer, archive);
    random_gradients(loaded, 7);
    prepared(loaded_optimizer).step();
    random_gradients(plain, 7);
    plain_optimizer->step();
    expect_close(loaded, plain);
  }
}

TEST(OptimizerStep, RunsAClosureOnceWithGradientsOn) {
  for (const auto& [name, make] : all_families()) {
    SCOPED_TRACE(name);
    Parameters parameters = copies({torch::ones({3})});
    auto optimizer = prepared(make(parameters));
    int calls = 0;
    const torch::NoGradGuard outside;
    const at::Tensor loss = optimizer.step([&] {
      ++calls;
      at::Tensor sum = parameters[0].square().sum();
      sum.backward();
      return sum;
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(loss.item<float>(), 3);
    EXPECT_LT(parameters[0][0].item<float>(), 1);
  }
}

TEST(OptimizerStep, LeavesClosuresToLbfgs) {
  Parameters parameters = copies({torch::full({1}, 5.0)});
  auto optimizer = prepared(std::make_shared<torch::optim::LBFGS>(
      parameters, torch::optim::LBFGSOptions(1).max_iter(10)));
  int calls = 0;
  optimizer.step([&] {
    ++calls;
    optimizer.zero_grad();
    at::Tensor loss = (parameters[0] - 3).square().sum();
    loss.backward();
    return loss;
  });
  EXPECT_GT(calls, 1);
  EXPECT_NEAR(parameters[0].item<float>(), 3, 1e-3);
}

TEST(OptimizerStep, LeavesGradientsAsTheyAre) {
  for (const auto& [name, make] : all_families()) {
    Parameters parameters = copies(small_parameters());
    auto optimizer = prepared(make(parameters));
    random_gradients(parameters, 0);
    const at::Tensor before = parameters[0].grad().clone();
    optimizer.step();
    EXPECT_TRUE(torch::equal(parameters[0].grad(), before)) << name;
  }
}

}  // namespace
}  // namespace accelerate
