#include "accelerate/flat_parameters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/schedulers.h"
#include "support/test_device.h"

namespace accelerate {
namespace {

using test::test_device;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{6, 10};
  torch::nn::Linear second{10, 10};
  at::Tensor shared;
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    shared = register_parameter("shared", second->weight);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::tanh(second(torch::tanh(first(x)))).matmul(shared);
  }
};

struct LinearsImpl : torch::nn::Module {
  torch::nn::Linear first{6, 11};
  torch::nn::Linear second{11, 3};
  LinearsImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
};
TORCH_MODULE(Linears);

struct FlatTest : testing::Test {
  void SetUp() override {
    test_device();  // opens the CUDA part where the tests are for a GPU
    torch::manual_seed(5);
  }
};

Linears a_net() {
  torch::manual_seed(5);
  Linears net;
  net->to(test_device());
  return net;
}

at::Tensor row_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& parameter : module.parameters()) {
    rows.push_back(parameter.detach().cpu().to(at::kDouble).reshape(-1));
  }
  return torch::cat(rows);
}

TEST_F(FlatTest, ParametersKeepTheirValuesAndBecomePartsOfOneVector) {
  Linears net = a_net();
  const at::Tensor before = row_of(*net);
  const FlatParameters flat(*net, {.dtype = at::kFloat});
  EXPECT_TRUE(torch::equal(row_of(*net), before));
  EXPECT_EQ(net->first->weight.data_ptr(), flat.values().data_ptr());  // matrices come first
  EXPECT_EQ(flat.matrix_numel(), 128 + 64);
  EXPECT_FALSE(flat.masters().defined());
  // The CPU's allocator aligns to less than the GPU's.
  const auto* start = static_cast<char*>(flat.values().data_ptr());
  for (const at::Tensor& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad());
    EXPECT_EQ((static_cast<char*>(parameter.data_ptr()) - start) % 128, 0);
  }
}

TEST_F(FlatTest, GradientsOfHalfPrecisionAddUpInFloat32) {
  Linears net = a_net();
  FlatParameters flat(*net);
  const at::Tensor x = torch::randn({4, 6}).to(test_device()).to(at::kBFloat16);
  at::Tensor sum = torch::zeros_like(flat.gradient());
  for (int pass = 0; pass < 3; ++pass) {
    flat.zero_grad();
    (net(x) * (pass + 1)).sum().backward();
    sum += flat.gradient();
  }
  flat.zero_grad();
  for (int pass = 0; pass < 3; ++pass) (net(x) * (pass + 1)).sum().backward();
  EXPECT_EQ(net->first->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(flat.gradient(), sum));
  EXPECT_GT(sum.abs().max().item<float>(), 0.0F);
}

TEST_F(FlatTest, ASharedParameterStandsOnce) {
  const auto net = std::make_shared<NetImpl>();
  net->to(test_device());
  const FlatParameters flat(*net, {.dtype = at::kFloat});
  EXPECT_EQ(flat.parameters().size(), 4u);
  EXPECT_EQ(net->shared.data_ptr(), net->second->weight.data_ptr());
}

TEST_F(FlatTest, AnUpdateIsThatOfAdamWOfTorch) {
  Linears mine = a_net();
  Linears theirs = a_net();
  FlatAdamW flat(
      std::make_shared<FlatParameters>(*mine, FlatParametersOptions{.dtype = at::kFloat}),
      {.lr = 1e-2, .weight_decay = 0.1, .max_norm = 0.05});
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const at::Tensor& parameter : theirs->parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  torch::optim::AdamW adamw({torch::optim::OptimizerParamGroup(
                                 matrices, std::make_unique<torch::optim::AdamWOptions>(
                                               torch::optim::AdamWOptions(1e-2).weight_decay(0.1))),
                             torch::optim::OptimizerParamGroup(
                                 vectors, std::make_unique<torch::optim::AdamWOptions>(
                                              torch::optim::AdamWOptions(1e-2).weight_decay(0)))},
                            torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = torch::randn({4, 6}).to(test_device());
    flat.zero_grad();
    adamw.zero_grad();
    mine(x).square().mean().backward();
    theirs(x).square().mean().backward();
    const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), 0.05);
    flat.step();
    adamw.step();
    EXPECT_NEAR(flat.last_norm().item<double>(), norm, 1e-5 * norm);
  }
  EXPECT_EQ(flat.steps(), 5);
  EXPECT_LT((row_of(*mine) - row_of(*theirs)).abs().max().item<double>(), 2e-6);
}

TEST_F(FlatTest, MastersKeepWhatHalfPrecisionCannot) {
  Linears mine = a_net();
  Linears exact = a_net();
  auto parameters = std::make_shared<FlatParameters>(*mine);
  FlatAdamW flat(parameters, {.lr = 1e-5});
  FlatAdamW wide(
      std::make_shared<FlatParameters>(*exact, FlatParametersOptions{.dtype = at::kFloat}),
      {.lr = 1e-5});
  for (int step = 0; step < 50; ++step) {
    parameters->gradient().fill_(1.0);
    wide.flat()->gradient().fill_(1.0);
    flat.step();
    wide.step();
  }
  EXPECT_LT((parameters->masters() - wide.flat()->values()).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(torch::equal(parameters->values(), parameters->masters().to(at::kBFloat16)));
}

TEST_F(FlatTest, StochasticRoundingMovesByTheRightAmountOnAverage) {
  torch::nn::Linear big(torch::nn::LinearOptions(256, 256).bias(false));
  torch::nn::init::constant_(big->weight, 1.0);
  big->to(test_device());
  auto parameters = std::make_shared<FlatParameters>(*big, FlatParametersOptions{.masters = false});
  FlatAdamW flat(parameters, {.lr = 1e-4, .weight_decay = 0, .stochastic_rounding = true});
  for (int step = 0; step < 20; ++step) {
    parameters->gradient().fill_(1.0);
    flat.step();
  }
  // A step of 1e-4 is far below the distance of bfloat16 numbers at 1, which is 4e-3.
  EXPECT_NEAR(parameters->values().to(at::kFloat).mean().item<double>(), 1 - 20 * 1e-4, 2e-4);
  EXPECT_GT(parameters->values().to(at::kFloat).std().item<double>(), 1e-3);
}

TEST_F(FlatTest, AnOverflowLeavesEverythingAsItWas) {
  Linears net = a_net();
  auto parameters = std::make_shared<FlatParameters>(*net);
  FlatAdamW flat(parameters);
  const at::Tensor before = parameters->values().clone();
  const at::Tensor found_inf = torch::ones({}).to(test_device());
  flat.skip_where(found_inf);
  parameters->gradient().fill_(INFINITY);
  flat.step();
  EXPECT_TRUE(torch::equal(parameters->values(), before));
  EXPECT_EQ(flat.steps(), 0);
  EXPECT_EQ(flat.step_calls(), 1);
  found_inf.zero_();
  parameters->gradient().fill_(1);
  flat.step();
  EXPECT_EQ(flat.steps(), 1);
  EXPECT_EQ(flat.step_calls(), 2);
  EXPECT_FALSE(torch::equal(parameters->values(), before));
}

TEST_F(FlatTest, GradientsThatWereReplacedAreCollected) {
  Linears net = a_net();
  auto parameters =
      std::make_shared<FlatParameters>(*net, FlatParametersOptions{.dtype = at::kFloat});
  FlatAdamW flat(parameters);
  parameters->gradient().fill_(7);
  net->zero_grad();  // sets them to none
  net(torch::randn({4, 6}).to(test_device())).sum().backward();
  const at::Tensor own = net->second->bias.grad().clone();
  flat.step();
  EXPECT_TRUE(torch::equal(net->second->bias.grad(), own));
  EXPECT_LT(net->first->weight.grad().max().item<float>(), 7.0F);
}

TEST_F(FlatTest, TheLearningRateIsThatOfTheOptionsAtEachStep) {
  Linears net = a_net();
  FlatAdamW flat(std::make_shared<FlatParameters>(*net, FlatParametersOptions{.dtype = at::kFloat}),
                 {.lr = 1.0, .weight_decay = 0});
  flat.param_groups()[0].options().set_lr(0.0);
  const at::Tensor before = row_of(*net);
  flat.flat()->gradient().fill_(1);
  flat.step();
  EXPECT_TRUE(torch::equal(row_of(*net), before));
}

TEST_F(FlatTest, TrainingGoesOnFromItsStateAsIfItHadNotStopped) {
  const auto trained = [](Linears& net, FlatAdamW& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      torch::manual_seed(step);
      optimizer.zero_grad();
      net(torch::randn({4, 6}).to(test_device()).to(at::kBFloat16)).sum().backward();
      optimizer.step();
    }
  };
  Linears whole = a_net();
  FlatAdamW one(std::make_shared<FlatParameters>(*whole), {.lr = 1e-2});
  trained(whole, one, 0, 3);
  one.param_groups()[0].options().set_lr(5e-3);
  const StateDict state = one.state_dict();
  StateDict saved;
  for (const auto& [name, value] : state.entries()) {
    saved.set(name, name == "lr" ? value : StateValue(value.as_tensor().cpu().clone()));
  }
  trained(whole, one, 3, 6);

  Linears other = a_net();
  for (at::Tensor& parameter : other->parameters()) parameter.detach().zero_();
  FlatAdamW two(std::make_shared<FlatParameters>(*other), {.lr = 1.0});
  two.load_state_dict(saved);
  EXPECT_EQ(two.steps(), 3);
  trained(other, two, 3, 6);
  EXPECT_TRUE(torch::equal(one.flat()->masters(), two.flat()->masters()));
  EXPECT_TRUE(torch::equal(one.flat()->values(), two.flat()->values()));
}

TEST_F(FlatTest, AStateThatDoesNotFitIsRefusedAndChangesNothing) {
  Linears net = a_net();
  FlatAdamW flat(std::make_shared<FlatParameters>(*net));
  const at::Tensor before = flat.flat()->masters().clone();
  StateDict state = flat.state_dict();
  state.set("masters", torch::zeros_like(before));
  state.set("exp_avg_sq", torch::zeros({3}));
  EXPECT_THROW(flat.load_state_dict(state), CheckpointError);
  EXPECT_THROW(flat.load_state_dict({{"lr", 0.1}}), CheckpointError);
  EXPECT_TRUE(torch::equal(flat.flat()->masters(), before));
}

StateDict cloned(const StateDict& state) {
  StateDict copy;
  for (const auto& [name, value] : state.entries()) {
    copy.set(name, name == "lr" ? value : StateValue(value.as_tensor().clone()));
  }
  return copy;
}

TEST_F(FlatTest, AClonedStateBringsBackWhatChanceHasRounded) {
  for (const bool masters : {true, false}) {
    Linears net = a_net();
    FlatAdamW flat(
        std::make_shared<FlatParameters>(*net, FlatParametersOptions{.masters = masters}),
        {.lr = 1e-3, .stochastic_rounding = true});
    flat.flat()->gradient().fill_(0.01);
    flat.step();
    const at::Tensor before = flat.flat()->values().clone();
    if (masters) {
      EXPECT_FALSE(torch::equal(before, flat.flat()->masters().to(at::kBFloat16)));
    }
    const StateDict state = cloned(flat.state_dict());
    flat.step();
    EXPECT_FALSE(torch::equal(flat.flat()->values(), before));
    flat.load_state_dict(state);
    EXPECT_TRUE(torch::equal(flat.flat()->values(), before));
    EXPECT_EQ(flat.steps(), 1);
  }
}

TEST_F(FlatTest, AStateOfNearestRoundingIsTakenByOneThatRoundsByChance) {
  Linears net = a_net(), other = a_net();
  FlatAdamW nearest(std::make_shared<FlatParameters>(*net), {.lr = 1e-2});
  nearest.flat()->gradient().fill_(1);
  nearest.step();
  FlatAdamW by_chance(std::make_shared<FlatParameters>(*other),
                      {.lr = 1e-2, .stochastic_rounding = true});
  by_chance.load_state_dict(nearest.state_dict());
  EXPECT_TRUE(torch::equal(by_chance.flat()->masters(), nearest.flat()->masters()));
  EXPECT_TRUE(torch::equal(by_chance.flat()->values(), nearest.flat()->values()));
}

// Not the generator of the process: a training that goes on must not depend on what else draws.
TEST_F(FlatTest, StochasticRoundingIsDecidedByItsSeed) {
  const auto trained = [](uint64_t seed, int64_t generator) {
    Linears net = a_net();
    FlatAdamW flat(std::make_shared<FlatParameters>(*net, FlatParametersOptions{.masters = false}),
                   {.lr = 1e-3, .stochastic_rounding = true, .seed = seed});
    torch::manual_seed(generator);
    for (int step = 0; step < 4; ++step) {
      flat.flat()->gradient().fill_(0.01);
      flat.step();
    }
    return flat.flat()->values().cpu();
  };
  EXPECT_TRUE(torch::equal(trained(7, 1), trained(7, 2)));
  EXPECT_FALSE(torch::equal(trained(7, 1), trained(8, 1)));
}

// The arithmetic is written down twice, for kernels and for operators: both give these.
TEST_F(FlatTest, StochasticRoundingRoundsUpWhereItsHashSaysSo) {
  torch::nn::Linear net(torch::nn::LinearOptions(8, 2).bias(false));
  torch::nn::init::constant_(net->weight, 1.0);
  net->to(test_device());
  auto parameters = std::make_shared<FlatParameters>(*net, FlatParametersOptions{.masters = false});
  FlatAdamW flat(parameters,
                 {.lr = 0.002, .weight_decay = 0, .stochastic_rounding = true, .seed = 3});
  parameters->gradient().fill_(1.0);
  flat.step();
  // 0.998 lies between 0.99609375 and 1: about half of them go each way.
  const auto mixed = [](uint64_t value) {
    for (const uint64_t factor : {0xff51afd7ed558ccdULL, 0xc4ceb9fe1a85ec53ULL}) {
      value ^= value >> 33;
      value *= factor;
    }
    return value ^ (value >> 33);
  };
  const float wanted = 1.0F - 0.002F;
  for (int64_t at = 0; at < 16; ++at) {
    uint32_t bits = 0;
    std::memcpy(&bits, &wanted, sizeof(bits));
    const uint64_t key = (3 + 1) * 0x9e3779b97f4a7c15ULL;
    bits = (bits + (mixed(key ^ static_cast<uint64_t>(at)) & 0xffff)) & 0xffff0000;
    float rounded = 0;
    std::memcpy(&rounded, &bits, sizeof(bits));
    EXPECT_EQ(parameters->values()[at].item<float>(), rounded) << at;
  }
}

TEST_F(FlatTest, AModuleThatHasLeftTheVectorIsNoticed) {
  Linears net = a_net();
  FlatAdamW flat(std::make_shared<FlatParameters>(*net));
  flat.step();
  net->to(at::kFloat);
  try {
    flat.step();
    FAIL() << "nothing was noticed";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(),
              "parameter 0 of 4 does not lie in the flat vector any more: updates would not reach "
              "the module");
  }
}

TEST_F(FlatTest, KindsOfNumbersThatNoKernelTakesAreRefused) {
  Linears net = a_net();
  for (const auto type : {at::kDouble, at::kLong}) {
    EXPECT_THROW(FlatParameters(*net, {.dtype = type}), UsageError);
  }
}

TEST_F(FlatTest, OptionsThatMeanNothingAreRefused) {
  Linears net = a_net();
  auto parameters = std::make_shared<FlatParameters>(*net);
  for (const FlatAdamWOptions& wrong : std::vector<FlatAdamWOptions>{{.lr = -1},
                                                                     {.beta1 = 1},
                                                                     {.beta2 = -0.1},
                                                                     {.eps = -1},
                                                                     {.weight_decay = NAN},
                                                                     {.max_norm = -1}}) {
    EXPECT_THROW(FlatAdamW(parameters, wrong), UsageError);
  }
}

// As clip_grad_norm_ of torch has it: a norm that is not a number makes all parameters so.
TEST_F(FlatTest, ANormThatIsNoNumberIsNotPassedOver) {
  Linears net = a_net();
  auto parameters = std::make_shared<FlatParameters>(*net);
  FlatAdamW flat(parameters, {.max_norm = 1.0});
  parameters->gradient().fill_(0.5);
  parameters->gradient()[0] = NAN;
  flat.step();
  EXPECT_TRUE(std::isnan(parameters->values()[1].item<float>()));
}

TEST_F(FlatTest, StochasticRoundingIsRefusedForFloat32) {
  Linears net = a_net();
  auto parameters =
      std::make_shared<FlatParameters>(*net, FlatParametersOptions{.dtype = at::kFloat});
  EXPECT_THROW(FlatAdamW(parameters, {.stochastic_rounding = true}), UsageError);
}

TEST_F(FlatTest, ParametersAreTheMastersAgainOnceTheyAreRefreshed) {
  Linears net = a_net();
  FlatParameters flat(*net, {.dtype = at::kBFloat16});
  const at::Tensor before = flat.values().clone();
  flat.masters().mul_(3).add_(0.01);
  EXPECT_TRUE(torch::equal(flat.values(), before));
  flat.refresh_from_masters();
  EXPECT_TRUE(torch::equal(flat.values(), flat.masters().to(at::kBFloat16)));
  EXPECT_FALSE(torch::equal(flat.values(), before));
  // The module sees it: its parameters are parts of the vector.
  EXPECT_TRUE(torch::equal(net->first->weight.detach().flatten(),
                           flat.values().narrow(0, 0, net->first->weight.numel())));
}

TEST_F(FlatTest, ThereIsNothingToRefreshWithoutMasters) {
  Linears net = a_net();
  FlatParameters flat(*net, {.dtype = at::kFloat});
  const at::Tensor before = flat.values().clone();
  flat.refresh_from_masters();
  EXPECT_TRUE(torch::equal(flat.values(), before));
}

}  // namespace
}  // namespace accelerate
