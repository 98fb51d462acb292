#include "optim/flat_step.h"

#include <accelerate/errors.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "device/replay_actions.h"
#include "optim/flat_optimizer.h"
#include "optim/flat_update.h"
#include "support/test_device.h"
#include "unit/residency/flat_net.h"

namespace accelerate {
namespace {

using residency::FlatUnit;
using test::flat_net;
using test::FlatNet;
using test::test_device;
using test::unit_of;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerParamGroup;

// A group for matrices and one for vectors.
std::vector<OptimizerParamGroup> two_groups(const torch::nn::Module& module, double decay,
                                            double decay_of_vectors = 0, double lr = 1e-2) {
  std::vector<at::Tensor> matrices, vectors;
  for (const at::Tensor& parameter : module.parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const auto options = [&](double weight_decay) {
    return std::make_unique<AdamWOptions>(AdamWOptions(lr).weight_decay(weight_decay));
  };
  return {OptimizerParamGroup(matrices, options(decay)),
          OptimizerParamGroup(vectors, options(decay_of_vectors))};
}

// To all parameters, as a pass through all of them does.
void give_gradients(FlatUnit& unit) {
  for (size_t i = 0; i < unit.parameters().size(); ++i) unit.declare_gradients({i});
}

// An AdamW over a unit, updated in flat vectors on any device.
struct Trained {
  explicit Trained(FlatNet own, const FlatOptions& options = {}, double decay_of_vectors = 0)
      : net(std::move(own)),
        unit(unit_of(*net, options)),
        adamw(two_groups(*net, 0.1, decay_of_vectors), AdamWOptions(1e-2)),
        known(std::make_shared<KnownFlatUnits>(KnownFlatUnits{unit})),
        strategy(adamw, known, nullptr),
        step(adamw, {unit}) {}

  void train(int steps, int first = 0) {
    for (int i = first; i < first + steps; ++i) {
      unit->drop_gradients();
      give_gradients(*unit);
      torch::manual_seed(100 + i);
      unit->gradient().copy_(torch::randn(unit->gradient().sizes()).to(test_device()));
      clear_gaps();
      step.step(nullptr);
    }
  }
  void clear_gaps() const {
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const int64_t used = unit->begin(i) + unit->parameters()[i].numel();
      unit->gradient().narrow(0, used, unit->end(i) - used).zero_();
    }
  }

  FlatNet net;
  std::shared_ptr<FlatUnit> unit;
  AdamW adamw;
  std::shared_ptr<KnownFlatUnits> known;
  FlatOptimizer strategy;
  FlatAdamWStep step;
};

at::Tensor row_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& parameter : module.parameters()) {
    rows.push_back(parameter.detach().cpu().to(at::kDouble).reshape(-1));
  }
  return torch::cat(rows);
}

TEST(FlatStepTest, AnUpdateIsThatOfAdamWOfTorchInOneKernel) {
  Trained mine(flat_net(), {.dtype = at::kFloat});
  FlatNet theirs = flat_net();
  AdamW adamw(two_groups(*theirs, 0.1), AdamWOptions(1e-2));
  for (int i = 0; i < 5; ++i) {
    mine.train(1, i);
    for (size_t p = 0; p < mine.net->parameters().size(); ++p) {
      theirs->parameters()[p].mutable_grad() = mine.net->parameters()[p].grad().clone();
    }
    adamw.step();
    EXPECT_EQ(mine.step.launches(), 1u);
  }
  EXPECT_LT((row_of(*mine.net) - row_of(*theirs)).abs().max().item<double>(), 1e-6);
  // Its state is where torch keeps it.
  for (size_t p = 0; p < theirs->parameters().size(); ++p) {
    const auto& own = static_cast<const AdamWParamState&>(
        *mine.adamw.state().at(mine.net->parameters()[p].unsafeGetTensorImpl()));
    const auto& other = static_cast<const AdamWParamState&>(
        *adamw.state().at(theirs->parameters()[p].unsafeGetTensorImpl()));
    EXPECT_EQ(own.step(), 5);
    EXPECT_EQ(own.exp_avg().storage().nbytes(), own.exp_avg().nbytes());
    EXPECT_LT((own.exp_avg() - other.exp_avg()).abs().max().item<double>(), 1e-6);
    EXPECT_LT((own.exp_avg_sq() - other.exp_avg_sq()).abs().max().item<double>(), 1e-6);
  }
}

TEST(FlatStepTest, GroupsThatDifferTakeAKernelEach) {
  Trained two(flat_net(), {}, /*decay_of_vectors=*/0.3);
  two.train(1);
  EXPECT_EQ(two.step.launches(), 2u);
  Trained rates(flat_net());
  rates.adamw.param_groups()[1].options().set_lr(5e-3);
  rates.train(1);
  EXPECT_EQ(rates.step.launches(), 2u);
}

// Parameters that a pass has left out are skipped, and counted apart from then on.
TEST(FlatStepTest, ParametersWithoutGradientAreSkippedAsTorchSkipsThem) {
  Trained mine(flat_net(), {.dtype = at::kFloat});
  FlatNet theirs = flat_net();
  AdamW adamw(two_groups(*theirs, 0.1), AdamWOptions(1e-2));
  const std::vector<std::vector<size_t>> left_out = {{1}, {}, {0, 2}, {}, {0, 1, 2, 3}, {3}};
  for (int i = 0; i < 6; ++i) {
    FlatUnit& unit = *mine.unit;
    unit.drop_gradients();
    torch::manual_seed(100 + i);
    for (size_t p = 0; p < unit.parameters().size(); ++p) {
      if (std::ranges::count(left_out[static_cast<size_t>(i)], p) != 0) continue;
      unit.gradient_part(p).copy_(torch::randn(unit.parameters()[p].sizes()).to(test_device()));
      unit.declare_gradients({p});
    }
    for (size_t p = 0; p < mine.net->parameters().size(); ++p) {
      const at::Tensor& gradient = mine.net->parameters()[p].grad();
      theirs->parameters()[p].mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
    }
    mine.step.step(nullptr);
    adamw.step();
    EXPECT_LT((row_of(*mine.net) - row_of(*theirs)).abs().max().item<double>(), 1e-6) << i;
    EXPECT_EQ(mine.adamw.state().size(), adamw.state().size()) << i;
  }
  for (size_t p = 0; p < theirs->parameters().size(); ++p) {
    const auto step_of = [](AdamW& own, const at::Tensor& parameter) {
      return static_cast<const AdamWParamState&>(*own.state().at(parameter.unsafeGetTensorImpl()))
          .step();
    };
    EXPECT_EQ(step_of(mine.adamw, mine.net->parameters()[p]),
              step_of(adamw, theirs->parameters()[p]));
  }
}

// Without masters too, where no other way is left.
TEST(FlatStepTest, CountsThatDifferNeedNoMasters) {
  Trained it(flat_net(), {.masters = false});
  it.unit->declare_gradients({0});
  it.unit->gradient_part(0).fill_(1);
  it.step.step(nullptr);
  it.train(2);
  EXPECT_EQ(it.step.launches(), 2u);
}

// Two of three groups are joined in one kernel, whichever have the same options.
TEST(FlatStepTest, AReplayFollowsTheGroupsThatWereJoined) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net, {.dtype = at::kFloat});
  std::vector<OptimizerParamGroup> groups;
  for (const size_t i : {0, 1, 2}) {
    std::vector<at::Tensor> own{unit->parameters()[i]};
    if (i == 2) own.push_back(unit->parameters()[3]);
    groups.emplace_back(own, std::make_unique<AdamWOptions>(AdamWOptions(1e-2).weight_decay(0)));
  }
  AdamW adamw(groups, AdamWOptions(1e-2));
  FlatAdamWStep step(adamw, {unit});
  const auto set_rates = [&](double first, double second, double third) {
    adamw.param_groups()[0].options().set_lr(first);
    adamw.param_groups()[1].options().set_lr(second);
    adamw.param_groups()[2].options().set_lr(third);
  };
  give_gradients(*unit);
  unit->gradient().fill_(1);
  set_rates(1e-2, 1e-2, 1e-3);
  step.step(nullptr);
  ASSERT_EQ(step.launches(), 2u);
  device::ReplayActions actions;
  {
    const device::ReplayActions::Scope recording(actions);
    step.step(nullptr);
  }
  EXPECT_TRUE(actions.holds());
  set_rates(2e-2, 2e-2, 3e-3);
  EXPECT_TRUE(actions.holds());
  set_rates(1e-2, 1e-3, 1e-3);
  EXPECT_FALSE(actions.holds());
}

TEST(FlatStepTest, GroupsHoldMastersAndTheUserSeesParameters) {
  Trained it(flat_net());
  const std::vector<at::Tensor> seen = it.strategy.parameters();
  size_t i = 0;
  for (const auto& group : it.adamw.param_groups()) {
    for (const at::Tensor& master : group.params()) {
      EXPECT_EQ(master.scalar_type(), at::kFloat);
      EXPECT_TRUE(it.unit->master(*it.unit->find(seen[i])).is_same(master));
      EXPECT_EQ(seen[i++].scalar_type(), at::kBFloat16);
    }
  }
  EXPECT_EQ(i, 4u);
}

TEST(FlatStepTest, MastersKeepWhatHalfPrecisionCannot) {
  Trained it(flat_net());
  for (auto& group : it.adamw.param_groups()) {
    auto& options = static_cast<AdamWOptions&>(group.options());
    options.lr(1e-6).weight_decay(0);
  }
  const at::Tensor before = it.unit->masters().clone();
  give_gradients(*it.unit);
  it.unit->gradient().fill_(1);
  it.clear_gaps();
  for (int i = 0; i < 3; ++i) it.step.step(nullptr);
  EXPECT_NEAR((before - it.unit->masters()).max().item<double>(), 3e-6, 1e-7);
  EXPECT_TRUE(torch::equal(it.unit->values(), it.unit->masters().to(at::kBFloat16)));
}

TEST(FlatStepTest, AClipThatWasDeferredIsPartOfTheUpdate) {
  Trained deferred(flat_net(), {.dtype = at::kFloat});
  Trained settled(flat_net(), {.dtype = at::kFloat});
  for (Trained* it : {&deferred, &settled}) {
    give_gradients(*it->unit);
    it->unit->gradient().fill_(0.25);
    it->clear_gaps();
    it->unit->defer_clip({.norm = flat_gradient_norm(it->unit->gradient()), .max_norm = 0.01});
  }
  settled.unit->settle_clip();
  const at::Tensor gradient = deferred.unit->gradient().clone();
  deferred.step.step(nullptr);
  settled.step.step(nullptr);
  EXPECT_TRUE(torch::equal(deferred.unit->gradient(), gradient));
  EXPECT_FALSE(deferred.unit->has_clip());
  EXPECT_LT((deferred.unit->values() - settled.unit->values()).abs().max().item<double>(), 1e-7);
}

// Written through .data(), after which nothing tells but the values themselves.
TEST(FlatStepTest, AnUpdateGoesOnFromWhatWasWrittenToTheValues) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Trained written(flat_net(), {.dtype = type});
    Trained told(flat_net(), {.dtype = type});
    for (Trained* it : {&written, &told}) it->train(2);
    for (const size_t i : {0, 1, 2, 3}) {
      // One element of each, so that the masters of its neighbours must stay.
      written.unit->parameters()[i].data().view(-1)[1] = 0.5;
      told.unit->master(i).data().view(-1)[1] = 0.5;
    }
    told.unit->masters_to_values();
    // An update that is skipped loses nothing.
    written.step.step_unless(torch::ones({}, test_device()));
    written.step.ended(/*skipped=*/true);
    EXPECT_TRUE(torch::equal(written.unit->values(), told.unit->values()));
    for (Trained* it : {&written, &told}) it->train(2, 2);
    EXPECT_EQ(written.step.launches(), 1u);
    EXPECT_TRUE(torch::equal(written.unit->masters(), told.unit->masters()));
    EXPECT_TRUE(torch::equal(written.unit->values(), told.unit->values()));
    EXPECT_FALSE(torch::equal(written.unit->masters(), written.unit->values().to(at::kFloat)));
  }
}

TEST(FlatStepTest, AnOverflowLeavesEverythingAsItWas) {
  Trained it(flat_net());
  it.train(2);
  const at::Tensor masters = it.unit->masters().clone();
  const at::Tensor values = it.unit->values().clone();
  it.step.step_unless(torch::ones({}, test_device()));
  it.step.ended(/*skipped=*/true);
  EXPECT_TRUE(torch::equal(it.unit->masters(), masters));
  EXPECT_TRUE(torch::equal(it.unit->values(), values));
  const auto count = [&] {
    return static_cast<const AdamWParamState&>(
               *it.adamw.state().at(it.unit->master(0).unsafeGetTensorImpl()))
        .step();
  };
  EXPECT_EQ(count(), 2);
  it.step.step_unless(torch::zeros({}, test_device()));
  it.step.ended(/*skipped=*/false);
  EXPECT_EQ(count(), 3);
  EXPECT_FALSE(torch::equal(it.unit->masters(), masters));
}

TEST(FlatStepTest, AStateThatWasReplacedIsTakenOver) {
  Trained one(flat_net());
  one.train(3);
  Trained other(flat_net());
  other.unit->masters().copy_(one.unit->masters());
  other.unit->masters_to_values();
  // As loading does: other tensors, and the same numbers.
  for (size_t i = 0; i < one.unit->parameters().size(); ++i) {
    const auto& from = static_cast<const AdamWParamState&>(
        *one.adamw.state().at(one.unit->master(i).unsafeGetTensorImpl()));
    auto state = std::make_unique<AdamWParamState>();
    state->step(from.step());
    state->exp_avg(from.exp_avg().clone());
    state->exp_avg_sq(from.exp_avg_sq().clone());
    other.adamw.state()[other.unit->master(i).unsafeGetTensorImpl()] = std::move(state);
  }
  one.train(2, 3);
  other.train(2, 3);
  EXPECT_TRUE(torch::equal(one.unit->masters(), other.unit->masters()));
  EXPECT_EQ(other.step.launches(), 1u);
}

TEST(FlatStepTest, WhatNoKernelDoesIsLeftToTheMasters) {
  Trained it(flat_net());
  for (auto& group : it.adamw.param_groups()) {
    static_cast<AdamWOptions&>(group.options()).amsgrad(true);
  }
  it.train(2);
  EXPECT_EQ(it.step.launches(), 0u);
  EXPECT_TRUE(torch::equal(it.unit->values(), it.unit->masters().to(at::kBFloat16)));
  Trained bare(flat_net(), {.masters = false});
  static_cast<AdamWOptions&>(bare.adamw.param_groups()[0].options()).amsgrad(true);
  EXPECT_THROW(bare.train(1), UsageError);
}

TEST(FlatStepTest, WithoutMastersChanceMovesByTheRightAmountOnAverage) {
  auto net =
      std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(256, 256).bias(false));
  net->to(test_device());
  torch::nn::init::constant_(net->weight, 1.0);
  const auto unit = unit_of(*net, {.masters = false, .seed = 3});
  // 1 - 1e-4 lies between 1 and the next bfloat16 below it.
  AdamW adamw({net->weight}, AdamWOptions(1e-4).weight_decay(0));
  FlatAdamWStep step(adamw, {unit});
  give_gradients(*unit);
  unit->gradient().fill_(1);
  for (int i = 0; i < 10; ++i) step.step(nullptr);
  EXPECT_EQ(net->weight.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(net->weight.to(at::kFloat).mean().item<double>(), 1 - 1e-3, 1e-4);
  EXPECT_NE(net->weight.min().item<float>(), net->weight.max().item<float>());
}

// The arithmetic of the kernel, in one place.
uint64_t hashed(uint64_t place, uint64_t step, uint64_t seed) {
  uint64_t value = place ^ ((step + seed) * uint64_t{0x9e3779b97f4a7c15});
  value ^= value >> 33;
  value *= uint64_t{0xff51afd7ed558ccd};
  value ^= value >> 33;
  value *= uint64_t{0xc4ceb9fe1a85ec53};
  value ^= value >> 33;
  return value;
}

TEST(FlatStepTest, ChanceRoundsUpWhereItsHashSaysSo) {
  const int64_t count = 1024;
  const auto options = at::TensorOptions(test_device()).dtype(at::kFloat);
  const at::Tensor values = torch::ones({count}, options.dtype(at::kBFloat16));
  const at::Tensor gradient = torch::ones({count}, options);
  // After the update each element is between two bfloat16 numbers.
  flat_adamw_update({.parameters = values,
                     .gradient = gradient,
                     .exp_avg = torch::zeros({count}, options),
                     .exp_avg_sq = torch::zeros({count}, options),
                     .learning_rate = torch::full({}, 1e-3, options),
                     .step = torch::ones({}, options),
                     .stochastic_rounding = true,
                     .seed = 11});
  const at::Tensor found = values.to(at::kFloat).cpu();
  const float exact = 1.0F - 1e-3F;
  uint32_t bits = 0;
  std::memcpy(&bits, &exact, sizeof(bits));
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t random = hashed(static_cast<uint64_t>(i), 1, 11) & 0xffff;
    const uint32_t cut = (bits + random) & 0xffff0000;
    float expected = 0;
    std::memcpy(&expected, &cut, sizeof(expected));
    wrong += found[i].item<float>() == expected ? 0 : 1;
  }
  EXPECT_LE(wrong, 2);  // the update itself is rounded
}

TEST(FlatStepTest, WithoutMastersOnlyAdamWIsTaken) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net, {.masters = false});
  const auto known = std::make_shared<KnownFlatUnits>(KnownFlatUnits{unit});
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THROW(FlatOptimizer(sgd, known, nullptr), UsageError);
}

TEST(FlatStepTest, AnOwnStepOfTheOptimizerReachesTheModel) {
  for (const double momentum : {0.0, 0.9}) {
    FlatNet net = flat_net();
    const auto unit = unit_of(*net);
    const auto known = std::make_shared<KnownFlatUnits>(KnownFlatUnits{unit});
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum));
    const FlatOptimizer strategy(sgd, known, nullptr);
    unit->note_pass();
    give_gradients(*unit);
    unit->gradient().fill_(1);
    const at::Tensor before = unit->values().clone();
    sgd.step();
    unit->refresh("forward");
    EXPECT_FALSE(torch::equal(unit->values(), before)) << momentum;
    EXPECT_TRUE(torch::equal(unit->values(), unit->masters().to(at::kBFloat16))) << momentum;
  }
}

TEST(FlatStepTest, AReleasedUnitGivesTheOptimizerItsParametersBack) {
  FlatNet net = flat_net();
  auto unit = unit_of(*net);
  const auto known = std::make_shared<KnownFlatUnits>(KnownFlatUnits{unit});
  AdamW adamw(net->parameters(), AdamWOptions(1e-2));
  FlatOptimizer strategy(adamw, known, nullptr);
  give_gradients(*unit);
  unit->gradient().fill_(1);
  strategy.make_step()->step(nullptr);
  unit->release();
  ASSERT_TRUE(adamw.param_groups()[0].params()[0].is_same(net->parameters()[0]));
  EXPECT_EQ(net->parameters()[0].scalar_type(), at::kFloat);
  EXPECT_EQ(adamw.state().count(net->parameters()[0].unsafeGetTensorImpl()), 1u);
  EXPECT_THROW(strategy.before_step(), UsageError);
}

TEST(FlatStepTest, AModelThatCameAfterItsOptimizerIsRefused) {
  FlatNet net = flat_net();
  const auto known = std::make_shared<KnownFlatUnits>();
  AdamW adamw(net->parameters(), AdamWOptions(1e-2));
  FlatOptimizer strategy(adamw, known, nullptr);
  const auto unit = unit_of(*net);
  known->push_back(unit);
  EXPECT_THROW(strategy.before_step(), UsageError);
}

}  // namespace
}  // namespace accelerate
