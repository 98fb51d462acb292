// Clipping has the values of torch's own, for every kind of gradient.
#include <accelerate/clip.h>
#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "support/test_device.h"

namespace accelerate {
namespace {

using testing::HasSubstr;
using Parameters = std::vector<at::Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor with_gradient(const at::Tensor& host_gradient) {
  const at::Tensor gradient = host_gradient.to(test::test_device());
  at::Tensor parameter = torch::zeros_like(gradient).requires_grad_(gradient.is_floating_point());
  parameter.mutable_grad() = gradient.clone();
  return parameter;
}

Parameters random_parameters(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  Parameters parameters;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{3}, {40, 5}, {}, {1000}, {300, 200}}) {
    parameters.push_back(with_gradient(torch::randn(shape).to(type)));
  }
  parameters.push_back(torch::zeros({4}).requires_grad_());  // has none
  return parameters;
}

void expect_gradients_near(const Parameters& actual, const Parameters& expected, double relative) {
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].grad().defined(), expected[i].grad().defined());
    if (!actual[i].grad().defined()) continue;
    EXPECT_TRUE(torch::allclose(actual[i].grad(), expected[i].grad(), relative, 1e-9)) << i;
  }
}

TEST(ClipGradNorm, HasTheValuesOfTorch) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const double norm_type : {1.0, 2.0, 3.5, kInfinity}) {
      for (const double max_norm : {0.5, 1e6}) {
        SCOPED_TRACE(testing::Message() << norm_type << " " << max_norm << " " << type);
        Parameters own = random_parameters(type);
        Parameters torchs = random_parameters(type);
        const at::Tensor norm = clip_grad_norm_(own, max_norm, {.norm_type = norm_type});
        const double expected = torch::nn::utils::clip_grad_norm_(torchs, max_norm, norm_type);
        EXPECT_EQ(norm.scalar_type(), type);
        EXPECT_NEAR(norm.item<double>() / expected, 1, 1e-6);
        expect_gradients_near(own, torchs, 2e-6);
      }
    }
  }
}

TEST(ClipGradNorm, AddsSmallNumberToTheNorm) {
  const Parameters parameters{with_gradient(torch::full({4}, 1e-6, at::kDouble))};
  clip_grad_norm_(parameters, 1e-6);  // the norm is 2e-6
  EXPECT_NEAR(parameters[0].grad()[0].item<double>(), 1e-6 / 3, 1e-15);
}

TEST(ClipGradNorm, LeavesGradientsWithinTheBoundBitwise) {
  const Parameters own = random_parameters();
  const Parameters before = random_parameters();
  clip_grad_norm_(own, 1e6);
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    EXPECT_TRUE(torch::equal(own[i].grad(), before[i].grad()));
  }
}

TEST(ClipGradNorm, ReturnsTheNormBeforeClipping) {
  const Parameters parameters{with_gradient(torch::tensor({3.0, 0.0})),
                              with_gradient(torch::tensor({4.0}))};
  EXPECT_FLOAT_EQ(clip_grad_norm_(parameters, 1.0).item<float>(), 5);
  EXPECT_NEAR(grad_norm(parameters).item<float>(), 1, 1e-5);
}

TEST(ClipGradNorm, TakesGradientsOfSeveralTypes) {
  const Parameters parameters{with_gradient(torch::full({2}, 3.0, at::kBFloat16)),
                              with_gradient(torch::full({2}, 4.0, at::kFloat)),
                              with_gradient(torch::full({2}, 1.0, at::kDouble))};
  const at::Tensor norm = clip_grad_norm_(parameters, 1.0);
  EXPECT_EQ(norm.scalar_type(), at::kDouble);
  EXPECT_NEAR(norm.item<double>(), std::sqrt(52.0), 1e-6);
  EXPECT_EQ(parameters[0].grad().scalar_type(), at::kBFloat16);
  EXPECT_NEAR(parameters[0].grad()[0].item<double>(), 3 / std::sqrt(52.0), 3e-3);
  EXPECT_NEAR(parameters[2].grad()[0].item<double>(), 1 / std::sqrt(52.0), 1e-6);
}

TEST(ClipGradNorm, TakesGradientsOfAnyLayout) {
  const at::Tensor table = torch::arange(12, at::kFloat).view({3, 4});
  const at::Tensor column = torch::zeros({3}).requires_grad_();
  column.mutable_grad() = table.select(1, 1);  // 1, 5, 9: every fourth element
  const at::Tensor turned = torch::zeros({4, 3}).requires_grad_();
  turned.mutable_grad() = torch::ones({3, 4}).t();
  const double norm = std::sqrt(1 + 25 + 81 + 12);
  EXPECT_FLOAT_EQ(clip_grad_norm_({column, turned}, 1.0).item<float>(), norm);
  EXPECT_NEAR(table[1][1].item<double>(), 5 / norm, 1e-5);
  EXPECT_EQ(table[1][2].item<double>(), 6);
}

TEST(ClipGradNorm, TakesSparseGradients) {
  const at::Tensor parameter = torch::zeros({5, 2}).requires_grad_();
  parameter.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1, 1, 4}}), torch::ones({3, 2}), {5, 2});
  EXPECT_FLOAT_EQ(clip_grad_norm_(parameter, 1.0).item<float>(), std::sqrt(10.0));
  const at::Tensor dense = parameter.grad().to_dense();
  EXPECT_NEAR(dense[1][0].item<double>(), 2 / std::sqrt(10.0), 1e-5);
  EXPECT_NEAR(dense[4][0].item<double>(), 1 / std::sqrt(10.0), 1e-5);
}

// C++ modules list a shared parameter once for each owner.
TEST(ClipGradNorm, CountsAndScalesATiedParameterOnce) {
  const at::Tensor tied = with_gradient(torch::tensor({3.0, 0.0}));
  const at::Tensor other = with_gradient(torch::tensor({4.0}));
  EXPECT_FLOAT_EQ(grad_norm({tied, other, tied}).item<float>(), 5);
  EXPECT_FLOAT_EQ(clip_grad_norm_({tied, other, tied}, 1.0).item<float>(), 5);
  EXPECT_NEAR(tied.grad()[0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(other.grad()[0].item<double>(), 0.8, 1e-6);
}

TEST(ClipGradNorm, CountsATiedTableOfSparseGradientsOnce) {
  const at::Tensor table = torch::zeros({5, 2}).requires_grad_();
  table.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1, 1, 4}}), torch::ones({3, 2}), {5, 2});
  EXPECT_FLOAT_EQ(clip_grad_norm_({table, table}, 1.0).item<float>(), std::sqrt(10.0));
  EXPECT_NEAR(table.grad().to_dense()[1][0].item<double>(), 2 / std::sqrt(10.0), 1e-5);
}

TEST(ClipGradNorm, RefusesABoundThatIsNone) {
  for (const double bound : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const Parameters parameters{with_gradient(torch::ones({2}))};
    EXPECT_THAT([&] { clip_grad_norm_(parameters, bound); },
                testing::ThrowsMessage<UsageError>(HasSubstr("max_norm must be 0 or more")));
    EXPECT_THROW(clip_grads_with_norm_(parameters, bound, torch::ones({})), UsageError);
    EXPECT_THAT([&] { clip_grad_value_(parameters, bound); },
                testing::ThrowsMessage<UsageError>(HasSubstr("clip_value must be 0 or more")));
    EXPECT_TRUE(torch::equal(parameters[0].grad().cpu(), torch::ones({2})));
  }
}

TEST(ClipGradNorm, OfNothingIsZero) {
  EXPECT_EQ(clip_grad_norm_(Parameters{}, 1.0).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({torch::zeros({3}).requires_grad_()}, 1.0).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({with_gradient(torch::empty({0}))}, 1.0, {.norm_type = kInfinity})
                .item<double>(),
            0);
  const at::Tensor table = torch::zeros({5, 2}).requires_grad_();
  table.mutable_grad() = torch::zeros({5, 2}).to_sparse();  // no row was used
  EXPECT_EQ(clip_grad_norm_(table, 1.0, {.norm_type = kInfinity}).item<double>(), 0);
}

TEST(ClipGradNorm, SpreadsWhatIsNoNumberAsTorchDoes) {
  for (const double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    Parameters own{with_gradient(torch::tensor({1.0, bad})), with_gradient(torch::tensor({2.0}))};
    Parameters torchs{with_gradient(torch::tensor({1.0, bad})),
                      with_gradient(torch::tensor({2.0}))};
    clip_grad_norm_(own, 1.0);
    torch::nn::utils::clip_grad_norm_(torchs, 1.0);
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_TRUE(torch::allclose(own[i].grad(), torchs[i].grad(), 0, 0, /*equal_nan=*/true))
          << own[i].grad() << torchs[i].grad();
    }
  }
}

TEST(ClipGradNorm, RefusesWhatIsNoNumberIfAskedTo) {
  const Parameters parameters{with_gradient(torch::tensor({1.0, kInfinity}))};
  EXPECT_THAT([&] { clip_grad_norm_(parameters, 1.0, {.error_if_nonfinite = true}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("the norm of the gradients is inf")));
  EXPECT_EQ(parameters[0].grad()[0].item<double>(), 1);
}

TEST(ClipGradNorm, CountsAsAChangeOfTheGradients) {
  const Parameters parameters{with_gradient(torch::ones({3}))};
  const auto before = parameters[0].grad()._version();
  clip_grad_norm_(parameters, 0.1);
  EXPECT_GT(parameters[0].grad()._version(), before);
}

TEST(ClipGradValue, BringsEveryElementIntoTheInterval) {
  const Parameters parameters{with_gradient(torch::tensor({-3.0, 0.25, 3.0})),
                              with_gradient(torch::tensor({7.0}, at::kDouble)),
                              torch::zeros({2}).requires_grad_()};
  clip_grad_value_(parameters, 0.5);
  EXPECT_TRUE(torch::equal(parameters[0].grad().cpu(), torch::tensor({-0.5, 0.25, 0.5})));
  EXPECT_EQ(parameters[1].grad().item<double>(), 0.5);
}

}  // namespace
}  // namespace accelerate
