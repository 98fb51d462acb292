// What the fused operations are given: wrong shapes and devices are refused before a kernel reads
// them, odd ones are taken. On the CPU, or on the device named by ACCELERATE_TEST_DEVICE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "support/test_device.h"

namespace accelerate::ops {
namespace {

using test::test_device;
using testing::HasSubstr;

at::Tensor random_input(at::IntArrayRef sizes) { return torch::randn(sizes).to(test_device()); }
at::Tensor elsewhere(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return torch::zeros(sizes, at::TensorOptions(type).device(at::kMeta));
}
at::Tensor targets(int64_t classes, int64_t rows) {
  return torch::randint(classes, {rows}).to(test_device());
}

template <class Call>
std::string refusal_of(Call call) {
  try {
    (void)call();
  } catch (const UsageError& error) {
    return error.message();
  }
  return "no refusal";
}

struct OpsInputsTest : testing::Test {
  void SetUp() override {
    test_device();  // opens the CUDA part where the tests are for a GPU
    torch::manual_seed(31);
  }
};

TEST_F(OpsInputsTest, RowsOfAnotherLengthAreRefused) {
  const at::Tensor x = random_input({4, 8});
  const at::Tensor fits = random_input({8});
  const at::Tensor shorter = random_input({7});
  EXPECT_EQ(refusal_of([&] { return gelu(x, shorter); }),
            "bias has the shape [7], the values have [4, 8]");
  EXPECT_THAT(refusal_of([&] { return gelu(x, random_input({1, 8})); }), HasSubstr("[1, 8]"));
  EXPECT_THAT(refusal_of([&] { return layer_norm(x, shorter, fits); }), HasSubstr("weight"));
  EXPECT_THAT(refusal_of([&] { return layer_norm(x, fits, shorter); }), HasSubstr("bias"));
  EXPECT_THAT(refusal_of([&] { return ops::rms_norm(x, {}); }), HasSubstr("weight is missing"));
  EXPECT_THAT(refusal_of([&] { return residual_layer_norm(x, x, fits, fits, 1e-5, shorter); }),
              HasSubstr("branch_bias"));
}

TEST_F(OpsInputsTest, TablesThatEndBeforeTheLastPositionAreRefused) {
  const at::Tensor tokens = torch::zeros({2, 5}, at::kLong).to(test_device());
  const at::Tensor table = random_input({3, 8});
  EXPECT_EQ(refusal_of([&] {
              return ops::embedding(tokens, table, random_input({4, 8}));
            }),
            "tokens [2, 5] do not match the tables [3, 8] and [4, 8]");
  EXPECT_THAT(refusal_of([&] {
                return ops::embedding(tokens, table, random_input({5, 16}));
              }),
              HasSubstr("[5, 16]"));
  EXPECT_THAT(refusal_of([&] { return ops::embedding(tokens, random_input({8})); }),
              HasSubstr("[8]"));
  EXPECT_EQ(ops::embedding(tokens, table, random_input({5, 8})).sizes(),
            at::IntArrayRef({2, 5, 8}));
}

TEST_F(OpsInputsTest, TensorsOnAnotherDeviceAreRefused) {
  const at::Tensor x = random_input({4, 6, 2, 8});
  const auto [cosine, sine] = rotary_angles(6, 8);
  EXPECT_THAT(refusal_of([&, &sine = sine] {
                return rotary_embedding(x, elsewhere({6, 4}), sine.to(test_device()));
              }),
              HasSubstr("cosine is on meta, the values are on"));
  EXPECT_THAT(refusal_of([&] { return gelu(x, elsewhere({8})); }), HasSubstr("bias is on meta"));
  EXPECT_THAT(refusal_of([&] {
                return ops::embedding(elsewhere({2, 3}, at::kLong), random_input({4, 8}));
              }),
              HasSubstr("tokens is on meta"));
  EXPECT_THAT(refusal_of([&] {
                return linear_cross_entropy(random_input({3, 8}), random_input({4, 8}),
                                            elsewhere({3}, at::kLong));
              }),
              HasSubstr("target is on meta"));
}

// A GPU cannot throw: what it cannot look up becomes no number, and so does all that follows.
TEST_F(OpsInputsTest, TokensAndTargetsThatAreNoneAreNotPassedOver) {
  for (const int64_t wrong : {-1, 4}) {
    const at::Tensor tokens = torch::tensor({{0L, wrong, 3L}}).to(test_device());
    at::Tensor rows = random_input({3, 8}).requires_grad_();
    const at::Tensor table = random_input({4, 8});
    if (!test_device().is_cuda()) {
      EXPECT_ANY_THROW(ops::embedding(tokens, table)) << wrong;
      EXPECT_ANY_THROW(linear_cross_entropy(rows, table, tokens.view(-1))) << wrong;
      continue;
    }
    const at::Tensor found = ops::embedding(tokens, table);
    EXPECT_TRUE(found[0][1].isnan().all().item<bool>());
    EXPECT_TRUE(torch::equal(found[0][2], table[3]));
    const at::Tensor loss = linear_cross_entropy(rows, table, tokens.view(-1));
    EXPECT_TRUE(std::isnan(loss.item<float>()));
    loss.backward();
    EXPECT_TRUE(rows.grad()[1].isnan().all().item<bool>());
    EXPECT_FALSE(rows.grad()[0].isnan().any().item<bool>());
  }
}

TEST_F(OpsInputsTest, AttentionNeedsAHead) {
  for (const int64_t heads : {0, -1, 5}) {
    EXPECT_THAT(refusal_of([&] {
                  return self_attention(random_input({1, 4, 8}), random_input({24, 8}), {}, heads);
                }),
                HasSubstr("multiple of the heads"))
        << heads;
  }
  EXPECT_THAT(refusal_of([&] {
                return self_attention(random_input({1, 4, 8}), random_input({24}), {}, 1);
              }),
              HasSubstr("self_attention() takes"));
}

TEST_F(OpsInputsTest, OptionsOfTheLossThatMeanNothingAreRefused) {
  const auto refusal = [&](const LinearCrossEntropyOptions& options) {
    return refusal_of([&] {
      return linear_cross_entropy(random_input({3, 8}), random_input({4, 8}), targets(4, 3),
                                  options);
    });
  };
  EXPECT_EQ(refusal({.label_smoothing = 1.5}), "label_smoothing must lie between 0 and 1");
  EXPECT_EQ(refusal({.label_smoothing = std::nan("")}), "label_smoothing must lie between 0 and 1");
  EXPECT_EQ(refusal({.z_loss = -1.0}), "z_loss must be 0 or more");
  EXPECT_EQ(refusal({.chunk_rows = -1}), "chunk_rows must be 0 or more");
  EXPECT_EQ(refusal({.label_smoothing = 1.0}), "no refusal");
  EXPECT_THAT(
      refusal_of([&] {
        return linear_cross_entropy(random_input({3, 8}), random_input({4, 9}), targets(4, 3));
      }),
      HasSubstr("the weight has the shape [4, 9]"));
}

// As torch has it: the loss is not a number, but nothing is learned from it.
TEST_F(OpsInputsTest, ABatchOfIgnoredRowsHasGradientsOfZero) {
  for (const double z_loss : {0.0, 0.1}) {
    at::Tensor rows = random_input({5, 8}).requires_grad_();
    at::Tensor table = random_input({6, 8}).requires_grad_();
    const at::Tensor ignored = torch::full({5}, -100, at::kLong).to(test_device());
    const at::Tensor loss = linear_cross_entropy(
        rows, table, ignored, {.label_smoothing = 0.1, .z_loss = z_loss, .chunk_rows = 2});
    EXPECT_TRUE(std::isnan(loss.item<float>()));
    loss.backward();
    EXPECT_EQ(rows.grad().abs().sum().item<float>(), 0.0F);
    EXPECT_EQ(table.grad().abs().sum().item<float>(), 0.0F);
  }
}

TEST_F(OpsInputsTest, NoRowsGiveNoGradient) {
  at::Tensor rows = random_input({0, 8}).requires_grad_();
  at::Tensor table = random_input({6, 8}).requires_grad_();
  linear_cross_entropy(rows, table, targets(6, 0)).backward();
  EXPECT_EQ(rows.grad().sizes(), rows.sizes());
  EXPECT_EQ(table.grad().abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(gelu(rows, random_input({8})).sizes(), rows.sizes());
  EXPECT_EQ(swiglu(rows).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(linear_swiglu(rows, random_input({3, 8}), random_input({3, 8})).sizes(),
            at::IntArrayRef({0, 3}));
  EXPECT_EQ(layer_norm(rows, random_input({8}), {}).sizes(), rows.sizes());
  EXPECT_EQ(linear(rows, random_input({3, 8}), random_input({3})).sizes(), at::IntArrayRef({0, 3}));
}

TEST_F(OpsInputsTest, GradientsOfGradientsAreRefusedWhereTheyWouldBeZero) {
  at::Tensor rows = random_input({5, 8}).requires_grad_();
  at::Tensor table = random_input({6, 8}).requires_grad_();
  const at::Tensor target = targets(6, 5);
  const auto plain =
      torch::autograd::grad({linear_cross_entropy(rows, table, target)}, {rows, table});
  const auto graph = torch::autograd::grad({linear_cross_entropy(rows, table, target)},
                                           {rows, table}, {}, std::nullopt, /*create_graph=*/true);
  EXPECT_TRUE(torch::equal(graph[0], plain[0]));
  EXPECT_TRUE(torch::equal(graph[1], plain[1]));
  std::string said;
  try {
    (rows.sum() + graph[0].square().sum()).backward();
  } catch (const std::exception& error) {
    said = error.what();
  }
  EXPECT_THAT(said, HasSubstr("ops::linear_cross_entropy has no gradients of gradients"));
}

// A contiguous tensor that begins one element after an address of 16 bytes.
at::Tensor shifted(const at::Tensor& values) {
  const at::Tensor longer = torch::empty({values.numel() + 1}, values.options());
  return longer.narrow(0, 1, values.numel()).view(values.sizes()).copy_(values);
}

TEST_F(OpsInputsTest, TensorsMayBeginAnywhere) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_input({6, 32}).to(type);
    const at::Tensor row = random_input({32}).to(type);
    const at::Tensor half = random_input({6, 16}).to(type);
    EXPECT_TRUE(torch::equal(gelu(shifted(x), shifted(row)), gelu(x, row)));
    EXPECT_TRUE(torch::equal(swiglu(shifted(x)), swiglu(x)));
    EXPECT_TRUE(torch::equal(rms_norm(shifted(x), shifted(row)), rms_norm(x, row)));
    EXPECT_TRUE(torch::equal(std::get<0>(residual_layer_norm(shifted(x), x, row, shifted(row))),
                             std::get<0>(residual_layer_norm(x, x, row, row))));
    at::Tensor in = x.clone().requires_grad_();
    swiglu(in).backward(shifted(half));
    at::Tensor other = x.clone().requires_grad_();
    swiglu(other).backward(half);
    EXPECT_TRUE(torch::equal(in.grad(), other.grad()));
  }
}

TEST_F(OpsInputsTest, AResidualIsBroadcastToItsBranch) {
  at::Tensor residual = random_input({1, 16}).requires_grad_();
  const at::Tensor branch = random_input({4, 16});
  const auto [sum, normed] = residual_rms_norm(residual, branch, random_input({16}));
  EXPECT_TRUE(torch::equal(sum, residual + branch));
  sum.sum().backward();
  EXPECT_TRUE(torch::equal(residual.grad(), torch::full_like(residual, 4).detach()));
}

TEST_F(OpsInputsTest, AnglesThatAreLearnedHaveGradients) {
  const auto [fixed_cosine, fixed_sine] = rotary_angles(6, 8);
  at::Tensor cosine = fixed_cosine.to(test_device()).requires_grad_();
  const at::Tensor x = random_input({2, 6, 3, 8});
  rotary_embedding(x, cosine, fixed_sine.to(test_device())).sum().backward();
  ASSERT_TRUE(cosine.grad().defined());
  const auto halves = x.chunk(2, -1);
  EXPECT_TRUE(torch::allclose(cosine.grad(), (halves[0] + halves[1]).sum(at::IntArrayRef{0, 2}),
                              1e-4, 1e-5));
}

}  // namespace
}  // namespace accelerate::ops
