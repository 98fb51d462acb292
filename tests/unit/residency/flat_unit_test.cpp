#include "residency/flat_unit.h"

#include <accelerate/errors.h>
#include <accelerate/ops.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <numeric>
#include <sstream>
#include <vector>

#include "compat/gradient_hooks.h"
#include "support/test_device.h"
#include "unit/residency/flat_net.h"

namespace accelerate {
namespace {

using residency::FlatUnit;
using test::flat_net;
using test::FlatNet;
using test::test_device;
using test::unit_of;

at::Tensor unit_input(at::ScalarType type = at::kBFloat16) {
  torch::manual_seed(7);
  return torch::randn({4, 6}).to(test_device()).to(type);
}

// What the reducer of units is built on.
TEST(GradientHooks, TellOfParametersWhoseOperationsHandNothingOn) {
  const at::Tensor weight =
      torch::randn({3, 6}).to(test_device()).to(at::kBFloat16).set_requires_grad(true);
  weight.mutable_grad() = torch::zeros({3, 6}, test_device());
  std::vector<size_t> told;
  {
    const compat::GradientHooks hooks({weight}, [&](size_t index) { told.push_back(index); });
    // Used twice, and told of once, when both have added their part.
    const at::Tensor x = unit_input();
    (ops::linear(x, weight) + ops::linear(x * 2, weight)).sum().backward();
    EXPECT_EQ(told, std::vector<size_t>{0});
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_GT(weight.grad().abs().sum().item<float>(), 0.0F);
    x.matmul(weight.t()).sum().backward();
    EXPECT_EQ(told.size(), 2u);
  }
  unit_input().matmul(weight.t()).sum().backward();
  EXPECT_EQ(told.size(), 2u);
}

TEST(FlatUnitTest, PartsOfTheGradientHaveVersionsOfTheirOwn) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const int64_t other = unit->gradient_part(1)._version();
  const int64_t own = unit->gradient_part(0)._version();
  unit->gradient_part(0).add_(1);
  EXPECT_GT(unit->gradient_part(0)._version(), own);
  EXPECT_EQ(unit->gradient_part(1)._version(), other);
  EXPECT_EQ(unit->gradient().sum().item<float>(),
            static_cast<float>(unit->parameters()[0].numel()));
}

TEST(FlatUnitTest, PartsHaveStoragesOfTheirOwn) {
  FlatNet net = flat_net();
  std::stringstream plain, flat;
  torch::save(net, plain);
  auto unit = unit_of(*net);
  for (size_t i = 0; i < unit->parameters().size(); ++i) {
    for (const at::Tensor& part :
         {unit->parameters()[i], unit->master(i), unit->gradient_part(i)}) {
      EXPECT_EQ(part.storage().nbytes(), part.nbytes());
      EXPECT_TRUE(part.is_contiguous());
    }
  }
  torch::save(net, flat);
  EXPECT_LE(flat.str().size(), plain.str().size());
  unit.reset();  // the memory stays as long as a part does
  EXPECT_TRUE(net->first->weight.isfinite().all().item<bool>());
}

TEST(FlatUnitTest, KernelsThatAddToAGradientLeaveATrace) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->offer_gradients();
  const std::vector<int64_t> before{net->first->weight.grad()._version(),
                                    net->first->bias.grad()._version()};
  ops::gelu(ops::linear(unit_input(), net->first->weight), net->first->bias).sum().backward();
  EXPECT_GT(net->first->weight.grad()._version(), before[0]);
  EXPECT_GT(net->first->bias.grad()._version(), before[1]);
}

TEST(FlatUnitTest, ParametersKeepTheirValuesAndBecomePartsOfOneVector) {
  FlatNet net = flat_net();
  const std::vector<at::Tensor> parameters = net->parameters();
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : parameters) before.push_back(parameter.detach().clone());
  const auto unit = unit_of(*net);
  EXPECT_EQ(net->first->weight.data_ptr(), unit->values().data_ptr());  // matrices come first
  EXPECT_EQ(unit->matrix_numel(), 128 + 64);
  const auto* start = static_cast<char*>(unit->values().data_ptr());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad());
    EXPECT_EQ((static_cast<char*>(parameter.data_ptr()) - start) % 128, 0);
    const at::Tensor& master = unit->master(*unit->find(parameter));
    EXPECT_TRUE(torch::equal(master, before[i]));
    EXPECT_TRUE(torch::equal(parameter, before[i].to(at::kBFloat16)));
    EXPECT_TRUE(master.is_leaf() && master.requires_grad());
    EXPECT_TRUE(master.grad().is_same(parameter.grad()));
    EXPECT_EQ(unit->find(master), unit->find(parameter));
  }
  EXPECT_FALSE(unit->find(before[0]).has_value());
}

TEST(FlatUnitTest, Float32NeedsNoMasters) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net, {.dtype = at::kFloat});
  EXPECT_FALSE(unit->masters().defined());
  EXPECT_TRUE(unit->master(0).is_same(unit->parameters()[0]));
}

TEST(FlatUnitTest, GradientsOfHalfPrecisionAddUpInFloat32) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const at::Tensor x = unit_input();
  at::Tensor sum = torch::zeros_like(unit->gradient());
  for (int pass = 0; pass < 3; ++pass) {
    unit->drop_gradients();
    unit->offer_gradients();
    (net(x) * (pass + 1)).sum().backward();
    sum += unit->gradient();
  }
  unit->drop_gradients();
  unit->offer_gradients();
  for (int pass = 0; pass < 3; ++pass) (net(x) * (pass + 1)).sum().backward();
  EXPECT_EQ(net->first->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(unit->gradient(), sum));
  EXPECT_GT(sum.abs().max().item<float>(), 0.0F);
}

std::vector<size_t> all_of(const FlatUnit& unit) {
  std::vector<size_t> all(unit.parameters().size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

TEST(FlatUnitTest, GradientsThatWereDroppedOrReplacedAreTakenOver) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->declare_gradients(all_of(*unit));
  unit->gradient().fill_(2);
  net->first->weight.mutable_grad().reset();
  net->second->bias.mutable_grad() = torch::full({3}, 5.0, test_device()).to(at::kBFloat16);
  unit->put_gradients_back();
  const size_t dropped = *unit->find(net->first->weight);
  EXPECT_FALSE(net->first->weight.grad().defined());
  EXPECT_FALSE(unit->master(dropped).grad().defined());
  EXPECT_EQ(unit->gradient_part(dropped).abs().sum().item<float>(), 0);
  EXPECT_EQ(net->second->bias.grad().sum().item<float>(), 15);
  EXPECT_EQ(net->first->bias.grad().sum().item<float>(), 22);
  EXPECT_EQ(net->second->bias.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(
      net->second->bias.grad().is_same(unit->gradient_part(*unit->find(net->second->bias))));
}

TEST(FlatUnitTest, AGradientIsDroppedForTheParameterAndItsMaster) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->declare_gradients({0, 1, 2});
  unit->master(0).mutable_grad().reset();
  unit->parameters()[1].mutable_grad().reset();
  unit->parameters()[3].mutable_grad() = torch::ones_like(unit->parameters()[3]);
  unit->mirror_dropped_gradients();
  EXPECT_FALSE(unit->parameters()[0].grad().defined());
  EXPECT_FALSE(unit->master(1).grad().defined());
  EXPECT_TRUE(unit->parameters()[2].grad().defined());
  EXPECT_TRUE(unit->parameters()[3].grad().defined());  // it is new
  unit->put_gradients_back();
  EXPECT_EQ(unit->with_gradient(), (std::vector<size_t>{2, 3}));
}

TEST(FlatUnitTest, ParametersThatAPassDoesNotReachHaveNoGradient) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->offer_gradients();
  net->second(torch::ones({2, 11}).to(test_device()).to(at::kBFloat16)).sum().backward();
  const std::vector<size_t> reached = unit->reached();
  unit->withdraw_gradients();
  EXPECT_EQ(reached.size(), 2u);
  EXPECT_EQ(unit->with_gradient(), reached);
  for (size_t i = 0; i < unit->parameters().size(); ++i) {
    EXPECT_EQ(unit->parameters()[i].grad().defined(), unit->has_gradient(i));
    EXPECT_TRUE(unit->master(i).grad().is_same(unit->parameters()[i].grad()));
  }
  EXPECT_TRUE(net->second->bias.grad().defined());
  // Offers of a pass that threw are none.
  unit->offer_gradients();
  unit->put_gradients_back();
  EXPECT_EQ(unit->with_gradient(), reached);
}

TEST(FlatUnitTest, DroppedGradientsStayAsZerosWhereTheyAreNotSetToNone) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->declare_gradients({1});
  unit->gradient_part(1).fill_(2);
  unit->drop_gradients(/*set_to_none=*/false);
  EXPECT_EQ(unit->with_gradient(), std::vector<size_t>{1});
  EXPECT_EQ(unit->gradient().abs().sum().item<float>(), 0);
  unit->drop_gradients({0, 1});
  EXPECT_TRUE(unit->with_gradient().empty());
}

// As torch refuses a graph whose values were changed; and no master follows what was not written.
TEST(FlatUnitTest, AnUpdateCountsAsAWriteThatMastersDoNotFollow) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const torch::NoGradGuard no_grad;
  unit->masters().fill_(1.0 / 3);
  unit->masters_to_values();
  std::vector<int64_t> before;
  for (const at::Tensor& parameter : unit->parameters()) before.push_back(parameter._version());
  unit->values_updated({0, 2});
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(unit->parameters()[i]._version() > before[i], i == 0 || i == 2) << i;
  }
  unit->refresh("test");
  EXPECT_EQ(unit->master(0).min().item<float>(), static_cast<float>(1.0 / 3));
  // What was written before an update nobody has looked at yet is not lost.
  unit->parameters()[2].fill_(0.75);
  unit->values_updated({2});
  unit->refresh("test");
  EXPECT_EQ(unit->master(2).min().item<float>(), 0.75F);
}

TEST(FlatUnitTest, ValuesThatWereWrittenInPlaceAreTakenOver) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const at::Tensor other = unit->master(0).detach().clone();
  {
    const torch::NoGradGuard no_grad;
    net->second->bias.fill_(0.75);
  }
  unit->refresh("test");
  const size_t index = *unit->find(net->second->bias);
  EXPECT_EQ(unit->master(index).sum().item<float>(), 2.25F);
  EXPECT_TRUE(torch::equal(unit->master(0), other));
}

// 1/3 is not exact in bfloat16: rounded masters would show.
TEST(FlatUnitTest, ValuesThatWereWrittenWithoutATraceAreTakenOverElementByElement) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    FlatNet net = flat_net();
    const auto unit = unit_of(*net, {.dtype = type});
    const torch::NoGradGuard no_grad;
    unit->masters().fill_(1.0 / 3);
    unit->masters_to_values();
    net->second->bias.data()[1] = 0.75;
    const at::Tensor& master = unit->master(*unit->find(net->second->bias));
    unit->adopt_written_values();
    const auto third = static_cast<float>(1.0 / 3);
    EXPECT_EQ(master[0].item<float>(), third);
    EXPECT_EQ(master[1].item<float>(), 0.75F);
    EXPECT_EQ(unit->master(0).min().item<float>(), third);
    // In place too: what was not changed is not rounded.
    net->second->bias[2] = 0.5;
    unit->refresh("test");
    EXPECT_EQ(master[0].item<float>(), third);
    EXPECT_EQ(master[2].item<float>(), 0.5F);
  }
}

// As plain SGD: all that is known is whether there was a pass.
struct UserWithoutTrace final : residency::MasterUser {
  bool may_have_updated(bool passed) const override { return passed; }
  void updates_seen() override {}
  void unit_released() override {}
};

TEST(FlatUnitTest, AnUpdateThatLeavesNoTraceIsNotTakenForAWrite) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const auto user = std::make_shared<UserWithoutTrace>();
  unit->add_user(user);
  const torch::NoGradGuard no_grad;
  const size_t written = *unit->find(net->second->bias);
  for (int i = 0; i < 2; ++i) {
    unit->note_pass();
    unit->master(0).add_(0.25);
    const at::Tensor moved = unit->master(0).detach().clone();
    net->second->bias.data().fill_(0.5 + i);
    unit->refresh("test");
    EXPECT_TRUE(torch::equal(unit->master(0), moved));
    EXPECT_TRUE(torch::equal(unit->parameters()[0], moved.to(at::kBFloat16)));
    EXPECT_EQ(unit->master(written).min().item<double>(), 0.5 + i);
    EXPECT_EQ(net->second->bias.min().item<double>(), 0.5 + i);
  }
  unit->note_pass();
  unit->master(0).add_(0.25);
  const at::Tensor moved = unit->master(0).detach().clone();
  net->second->bias.data().fill_(3);
  unit->release();
  EXPECT_TRUE(torch::equal(net->first->weight, moved));
  EXPECT_EQ(net->second->bias.min().item<float>(), 3);
}

// 1/3 is not exact in bfloat16: rounded masters would show.
TEST(FlatUnitTest, MastersThatWereLoadedReplaceWhatWasWrittenBefore) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  const torch::NoGradGuard no_grad;
  net->second->bias.fill_(0.75);
  unit->masters().fill_(1.0 / 3);
  unit->masters_to_values();
  unit->refresh("test");
  EXPECT_EQ(unit->master(*unit->find(net->second->bias)).sum().item<float>(), 1.0F);
}

TEST(FlatUnitTest, ReleasedParametersHaveWhatWasWrittenLast) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  {
    const torch::NoGradGuard no_grad;
    net->second->bias.fill_(0.75);
  }
  unit->release();
  EXPECT_EQ(net->second->bias.sum().item<float>(), 2.25F);
}

TEST(FlatUnitTest, AModuleThatHasLeftTheVectorIsNoticed) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  net->to(at::kDouble);
  try {
    unit->refresh("forward");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_NE(error.message().find("first.weight"), std::string::npos) << error.message();
    EXPECT_EQ(error.where(), "forward");
  }
}

TEST(FlatUnitTest, ParametersOfOtherKindsAreRefusedAndLeftAlone) {
  FlatNet net = flat_net();
  net->second->to(at::kDouble);
  const void* memory = net->first->weight.data_ptr();
  EXPECT_THROW(unit_of(*net), UsageError);
  EXPECT_EQ(net->first->weight.data_ptr(), memory);
}

TEST(FlatUnitTest, ReleasedParametersAreTheirMasters) {
  FlatNet net = flat_net();
  const at::Tensor before = net->first->weight.detach().clone();
  const auto unit = unit_of(*net);
  const void* masters = unit->masters().data_ptr();
  unit->release();
  EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(net->first->weight, before));
  EXPECT_EQ(net->first->weight.data_ptr(), masters);
  EXPECT_TRUE(net->first->weight.requires_grad());
}

TEST(FlatUnitTest, AClipThatWasLeftToTheUpdateCanBeMadeNow) {
  FlatNet net = flat_net();
  const auto unit = unit_of(*net);
  unit->gradient_part(0).fill_(2);
  const at::Tensor norm = unit->gradient().norm();
  unit->defer_clip({.norm = norm, .max_norm = 1});
  unit->settle_clip();
  EXPECT_NEAR(unit->gradient().norm().item<double>(), 1, 1e-5);
  EXPECT_FALSE(unit->has_clip());
}

}  // namespace
}  // namespace accelerate
