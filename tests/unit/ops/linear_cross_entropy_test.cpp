// The fused loss head against its definition in float64, on the CPU or on the device named by
// ACCELERATE_TEST_DEVICE.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "support/test_device.h"

namespace accelerate::ops {
namespace {

using test::test_device;

at::Tensor exact_loss(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& target,
                      const LinearCrossEntropyOptions& options) {
  const at::Tensor logits = rows.matmul(weight.t());
  const at::Tensor log_sum = logits.logsumexp(1);
  const at::Tensor kept = target.ne(options.ignore_index);
  const at::Tensor chosen = logits.gather(1, target.masked_fill(~kept, 0).unsqueeze(1)).squeeze(1);
  const at::Tensor loss = (1 - options.label_smoothing) * (log_sum - chosen) +
                          options.label_smoothing * (log_sum - logits.mean(1)) +
                          options.z_loss * log_sum.square();
  return loss.masked_select(kept).mean();
}

void expect_exact(int64_t rows, int64_t classes, at::ScalarType type,
                  const LinearCrossEntropyOptions& options, double upstream) {
  SCOPED_TRACE(testing::Message() << c10::toString(type) << " classes " << classes << " chunk "
                                  << options.chunk_rows);
  const at::Tensor input = torch::randn({rows, 24}, at::kDouble).to(type);
  const at::Tensor table = (torch::randn({classes, 24}, at::kDouble) / 3).to(type);
  at::Tensor target = torch::randint(classes, {rows});
  target[1] = options.ignore_index;
  at::Tensor own_input = input.to(test_device()).detach().requires_grad_();
  at::Tensor own_table = table.to(test_device()).detach().requires_grad_();
  at::Tensor wide_input = input.to(at::kDouble).detach().requires_grad_();
  at::Tensor wide_table = table.to(at::kDouble).detach().requires_grad_();
  const at::Tensor found =
      linear_cross_entropy(own_input, own_table, target.to(test_device()), options);
  const at::Tensor right = exact_loss(wide_input, wide_table, target, options);
  (found * upstream).backward();
  (right * upstream).backward();
  const double allowed = type == at::kDouble ? 1e-11 : type == at::kFloat ? 1e-5 : 1.5e-2;
  EXPECT_EQ(found.scalar_type(), type == at::kDouble ? at::kDouble : at::kFloat);
  EXPECT_NEAR(found.item<double>(), right.item<double>(), allowed * right.item<double>());
  const auto error = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a.cpu().to(at::kDouble) - b).norm() / b.norm()).item<double>();
  };
  EXPECT_LT(error(own_input.grad(), wide_input.grad()), allowed);
  EXPECT_LT(error(own_table.grad(), wide_table.grad()), allowed);
  EXPECT_EQ(own_input.grad()[1].abs().sum().item<double>(), 0.0) << "an ignored row has a gradient";
}

struct LinearCrossEntropyTest : testing::Test {
  void SetUp() override {
    test_device();  // opens the CUDA part where the tests are for a GPU
    torch::manual_seed(23);
  }
};

TEST_F(LinearCrossEntropyTest, EqualsItsDefinitionForAnyChunksAndOptions) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t classes : {40, 37, 3}) {
      for (const int64_t chunk : {0, 1, 4, 100}) {
        expect_exact(11, classes, type, {.chunk_rows = chunk}, 1.0);
        expect_exact(
            11, classes, type,
            {.ignore_index = 2, .label_smoothing = 0.1, .z_loss = 1e-2, .chunk_rows = chunk}, -2.5);
      }
    }
  }
}

TEST_F(LinearCrossEntropyTest, ManyClassesFitInOneRow) {
  expect_exact(9, 50304, at::kFloat, {.chunk_rows = 4}, 1.0);
  expect_exact(9, 70001, at::kFloat, {.chunk_rows = 4}, 1.0);
}

TEST_F(LinearCrossEntropyTest, GradientsOfHalfPrecisionSurviveManyRows) {
  // Divided by 4,096 rows before the product, most gradients of float16 logits would be zero.
  const at::Tensor rows = torch::randn({4096, 8}).to(at::kHalf).to(test_device());
  at::Tensor table = torch::randn({64, 8}).to(at::kHalf).to(test_device()).requires_grad_();
  const at::Tensor target = torch::randint(64, {4096}).to(test_device());
  (linear_cross_entropy(rows, table, target) * 1024).backward();
  at::Tensor wide = table.detach().cpu().to(at::kDouble).requires_grad_();
  (exact_loss(rows.cpu().to(at::kDouble), wide, target.cpu(), {}) * 1024).backward();
  EXPECT_LT(((table.grad().cpu().to(at::kDouble) - wide.grad()).norm() / wide.grad().norm())
                .item<double>(),
            5e-3);
}

TEST_F(LinearCrossEntropyTest, WithoutGradientOnlyTheLossIsComputed) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = torch::randn({5, 8}).to(test_device());
  const at::Tensor table = torch::randn({6, 8}).to(test_device());
  const at::Tensor target = torch::randint(6, {5}).to(test_device());
  const at::Tensor loss = linear_cross_entropy(rows, table, target);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_NEAR(loss.item<double>(),
              torch::nn::functional::cross_entropy(rows.matmul(table.t()), target).item<double>(),
              1e-5);
}

TEST_F(LinearCrossEntropyTest, AGradientInFloat32IsAddedToInPlace) {
  const at::Tensor rows = torch::randn({5, 8}).to(at::kBFloat16).to(test_device());
  at::Tensor table = torch::randn({6, 8}).to(at::kBFloat16).to(test_device()).requires_grad_();
  const at::Tensor gradient = torch::ones({6, 8}).to(test_device());
  table.mutable_grad() = gradient;
  linear_cross_entropy(rows, table, torch::randint(6, {5}).to(test_device())).backward();
  EXPECT_TRUE(table.grad().is_same(gradient));
  EXPECT_EQ(gradient.scalar_type(), at::kFloat);
  EXPECT_NEAR(gradient.mean().item<double>(), 1.0, 1e-3);  // gradients of logits sum to 0
  EXPECT_GT((gradient - 1).abs().max().item<double>(), 1e-3);
}

TEST_F(LinearCrossEntropyTest, APassThatDoesNotReachTheWeightLeavesItsGradientAlone) {
  const at::Tensor rows = torch::randn({5, 8}).to(at::kBFloat16).to(test_device()).requires_grad_();
  at::Tensor table = torch::randn({6, 8}).to(at::kBFloat16).to(test_device()).requires_grad_();
  table.mutable_grad() = torch::ones({6, 8}).to(test_device());
  const at::Tensor target = torch::randint(6, {5}).to(test_device());
  const auto found = torch::autograd::grad({linear_cross_entropy(rows, table, target)}, {rows});
  EXPECT_GT(found[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(table.grad().eq(1).all().item<bool>());
}

TEST_F(LinearCrossEntropyTest, RefusesTargetsThatAreNotOneIntegerForEachRow) {
  const at::Tensor rows = torch::randn({5, 8});
  EXPECT_THROW(linear_cross_entropy(rows, rows, torch::zeros({5})), UsageError);
  EXPECT_THROW(linear_cross_entropy(rows, rows, torch::zeros({4}, torch::kLong)), UsageError);
}

}  // namespace
}  // namespace accelerate::ops
