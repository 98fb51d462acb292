// Fused operations against float64: values and gradients, on the CPU, or on the device named by
// ACCELERATE_TEST_DEVICE.
#include "accelerate/ops.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "accelerate/errors.h"
#include "support/test_device.h"

namespace accelerate::ops {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

using test::test_device;

double relative_error(const at::Tensor& found, const at::Tensor& exact) {
  const at::Tensor wide = found.detach().cpu().to(at::kDouble);
  const double size = exact.norm().item<double>();
  return (wide - exact).norm().item<double>() / (size == 0 ? 1 : size);
}

double allowed(at::ScalarType type) {
  if (type == at::kDouble) return 1e-12;
  if (type == at::kFloat) return 2e-5;
  return type == at::kHalf ? 4e-3 : 2e-2;
}

// Runs `fused` on inputs of `type` and `exact` on the same values in float64; compares outputs and
// the gradients of a random projection of them.
void expect_same(const Tensors& inputs, at::ScalarType type, const Operation& fused,
                 const Operation& exact) {
  SCOPED_TRACE(c10::toString(type));
  Tensors own;
  Tensors wide;
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || !input.is_floating_point()) {
      own.push_back(input.defined() ? input.to(test_device()) : input);
      wide.push_back(input);
      continue;
    }
    own.push_back(input.to(type).to(test_device()).detach().requires_grad_());
    wide.push_back(input.to(type).to(at::kDouble).detach().requires_grad_());
  }
  const Tensors found = fused(own);
  const Tensors right = exact(wide);
  ASSERT_EQ(found.size(), right.size());
  at::Tensor own_total = torch::zeros({}, at::TensorOptions(at::kDouble).device(test_device()));
  at::Tensor total = torch::zeros({}, at::kDouble);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(relative_error(found[i], right[i].detach()), allowed(type)) << "output " << i;
    const at::Tensor along = torch::randn(right[i].sizes(), at::kDouble).to(type).to(at::kDouble);
    own_total = own_total + (found[i].to(at::kDouble) * along.to(test_device())).sum();
    total = total + (right[i] * along).sum();
  }
  own_total.backward();
  total.backward();
  for (size_t i = 0; i < own.size(); ++i) {
    if (!wide[i].defined() || !wide[i].requires_grad()) continue;
    ASSERT_TRUE(own[i].grad().defined()) << "gradient " << i;
    EXPECT_EQ(own[i].grad().scalar_type(), type);
    EXPECT_LT(relative_error(own[i].grad(), wide[i].grad()), 2 * allowed(type)) << "gradient " << i;
  }
}

const std::vector<at::ScalarType> kTypes{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, at::kDouble); }

at::Tensor exact_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      bool rms, double eps) {
  const at::Tensor centred = rms ? x : x - x.mean(-1, true);
  const at::Tensor normed = centred * torch::rsqrt(centred.square().mean(-1, true) + eps) * weight;
  return bias.defined() ? normed + bias : normed;
}

struct OpsTest : testing::Test {
  void SetUp() override {
    test_device();  // opens the CUDA part where the tests are for a GPU
    torch::manual_seed(17);
  }
};

TEST_F(OpsTest, LinearIsTheProductWithItsGradients) {
  for (const auto type : kTypes) {
    for (const bool with_bias : {true, false}) {
      const at::Tensor bias = with_bias ? random({24}) : at::Tensor();
      expect_same(
          {random({3, 5, 16}), random({24, 16}), bias}, type,
          [](const Tensors& in) { return Tensors{linear(in[0], in[1], in[2])}; },
          [](const Tensors& in) {
            const at::Tensor product = in[0].matmul(in[1].t());
            return Tensors{in[2].defined() ? product + in[2] : product};
          });
    }
  }
}

TEST_F(OpsTest, AWeightWithItsInputsFirstGivesTheSameProduct) {
  for (const auto type : kTypes) {
    expect_same(
        {random({3, 5, 16}), random({16, 24}), random({24})}, type,
        [](const Tensors& in) {
          return Tensors{linear(in[0], in[1], in[2], WeightLayout::kInputsFirst)};
        },
        [](const Tensors& in) { return Tensors{in[0].matmul(in[1]) + in[2]}; });
  }
}

TEST_F(OpsTest, ResidualLayerNormReturnsTheSumAndItsNorm) {
  for (const auto type : kTypes) {
    for (const int64_t width : {768, 40, 7, 1}) {
      for (const bool with_bias : {true, false}) {
        const at::Tensor branch_bias = with_bias ? random({width}) : at::Tensor();
        if (width == 1 && type != at::kDouble) continue;  // a norm of one value is 0
        expect_same(
            {random({3, 11, width}), random({3, 11, width}), random({width}), random({width}),
             branch_bias},
            type,
            [](const Tensors& in) {
              auto [sum, normed] = residual_layer_norm(in[0], in[1], in[2], in[3], 1e-5, in[4]);
              return Tensors{sum, normed};
            },
            [](const Tensors& in) {
              at::Tensor sum = in[0] + in[1];
              if (in[4].defined()) sum = sum + in[4];
              return Tensors{sum, exact_norm(sum, in[2], in[3], false, 1e-5)};
            });
      }
    }
  }
}

TEST_F(OpsTest, LayerNormAndRmsNormStandAlone) {
  for (const auto type : kTypes) {
    for (const int64_t width : {1600, 64, 33}) {
      expect_same(
          {random({5, width}), random({width}), random({width})}, type,
          [](const Tensors& in) {
            return Tensors{layer_norm(in[0], in[1], in[2]), rms_norm(in[0], in[1])};
          },
          [](const Tensors& in) {
            return Tensors{exact_norm(in[0], in[1], in[2], false, 1e-5),
                           exact_norm(in[0], in[1], {}, true, 1e-6)};
          });
    }
  }
}

TEST_F(OpsTest, ResidualRmsNormReturnsTheSumAndItsNorm) {
  for (const auto type : kTypes) {
    for (const int64_t width : {128, 9}) {
      expect_same(
          {random({70, width}), random({70, width}), random({width})}, type,
          [](const Tensors& in) {
            auto [sum, normed] = residual_rms_norm(in[0], in[1], in[2]);
            return Tensors{sum, normed};
          },
          [](const Tensors& in) {
            const at::Tensor sum = in[0] + in[1];
            return Tensors{sum, exact_norm(sum, in[2], {}, true, 1e-6)};
          });
    }
  }
}

TEST_F(OpsTest, NormsOfManyRowsSumTheirGradientsOverAllOfThem) {
  expect_same(
      {random({2500, 32}), random({32}), random({32})}, at::kFloat,
      [](const Tensors& in) { return Tensors{layer_norm(in[0], in[1], in[2])}; },
      [](const Tensors& in) { return Tensors{exact_norm(in[0], in[1], in[2], false, 1e-5)}; });
}

TEST_F(OpsTest, GeluTakesTheBiasOfTheLayerBefore) {
  for (const auto type : kTypes) {
    for (const int64_t width : {520, 64, 5}) {
      for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
        for (const bool with_bias : {true, false}) {
          const at::Tensor bias = with_bias ? random({width}) : at::Tensor();
          expect_same(
              {random({37, width}), bias}, type,
              [&](const Tensors& in) { return Tensors{gelu(in[0], in[1], kind)}; },
              [&](const Tensors& in) {
                const at::Tensor x = in[1].defined() ? in[0] + in[1] : in[0];
                if (kind == Gelu::kErf) {
                  return Tensors{0.5 * x * (1 + torch::erf(x / std::sqrt(2.0)))};
                }
                const double scale = std::sqrt(2 / M_PI);
                return Tensors{0.5 * x * (1 + torch::tanh(scale * (x + 0.044715 * x.pow(3))))};
              });
        }
      }
    }
  }
}

// Kernels add to gradients in float32 by themselves, which autograd does not see.
TEST_F(OpsTest, APassThatDoesNotReachAParameterLeavesItsGradientAlone) {
  const auto value = [](at::IntArrayRef shape) {
    return torch::randn(shape).to(at::kBFloat16).to(test_device()).requires_grad_();
  };
  const auto row = [&] {
    at::Tensor parameter = value({64});
    parameter.mutable_grad() = torch::ones({64}).to(test_device());
    return parameter;
  };
  const at::Tensor residual = value({4, 64}), branch = value({4, 64});
  const at::Tensor weight = row(), bias = row(), branch_bias = row();
  const std::vector<Operation> operations{
      [&](const Tensors&) {
        return Tensors{
            std::get<1>(residual_layer_norm(residual, branch, weight, bias, 1e-5, branch_bias))};
      },
      [&](const Tensors&) { return Tensors{layer_norm(branch, weight, bias)}; },
      [&](const Tensors&) { return Tensors{gelu(branch, bias)}; }};
  for (const Operation& operation : operations) {
    torch::autograd::grad({operation({})[0].square().sum()}, {branch});
    for (const at::Tensor& parameter : {weight, bias, branch_bias}) {
      EXPECT_TRUE(parameter.grad().eq(1).all().item<bool>());
    }
    // One of several.
    torch::autograd::grad({operation({})[0].square().sum()}, {bias}, {}, {}, false,
                          /*allow_unused=*/true);
    for (const at::Tensor& parameter : {weight, branch_bias}) {
      EXPECT_TRUE(parameter.grad().eq(1).all().item<bool>());
    }
    bias.mutable_grad().fill_(1);
  }
}

TEST_F(OpsTest, SwigluGatesTheSecondHalfByTheFirst) {
  for (const auto type : kTypes) {
    for (const int64_t width : {64, 10}) {
      expect_same(
          {random({3, 7, width})}, type, [](const Tensors& in) { return Tensors{swiglu(in[0])}; },
          [](const Tensors& in) {
            const auto halves = in[0].chunk(2, -1);
            return Tensors{halves[0] * torch::sigmoid(halves[0]) * halves[1]};
          });
    }
  }
  EXPECT_THROW(swiglu(torch::zeros({2, 3})), UsageError);
}

TEST_F(OpsTest, LinearSwigluIsTheProductOfTwoLayersOneOfThemAGate) {
  for (const auto type : kTypes) {
    for (const int64_t inner : {16, 5}) {
      expect_same(
          {random({3, 7, 8}), random({inner, 8}), random({inner, 8})}, type,
          [](const Tensors& in) { return Tensors{linear_swiglu(in[0], in[1], in[2])}; },
          [](const Tensors& in) {
            const at::Tensor gate = torch::matmul(in[0], in[1].t());
            return Tensors{gate * torch::sigmoid(gate) * torch::matmul(in[0], in[2].t())};
          });
    }
  }
  EXPECT_THROW(linear_swiglu(torch::zeros({2, 3}), torch::zeros({4, 3}), torch::zeros({5, 3})),
               UsageError);
  EXPECT_THROW(linear_swiglu(torch::zeros({2, 4}), torch::zeros({4, 3}), torch::zeros({4, 3})),
               UsageError);
}

TEST_F(OpsTest, RotaryEmbeddingTurnsEachPairByTheAngleOfItsPosition) {
  const auto [cosine, sine] = rotary_angles(6, 8);
  EXPECT_NEAR(cosine[3][0].item<double>(), std::cos(3.0), 1e-6);
  EXPECT_NEAR(sine[5][1].item<double>(), std::sin(5.0 * std::pow(10000.0, -2.0 / 8)), 1e-6);
  for (const auto type : kTypes) {
    expect_same(
        {random({2, 6, 3, 8})}, type,
        [&](const Tensors& in) {
          return Tensors{rotary_embedding(in[0], cosine.to(test_device()), sine.to(test_device()))};
        },
        [&](const Tensors& in) {
          const auto halves = in[0].chunk(2, -1);
          const at::Tensor c = cosine.to(at::kDouble).view({6, 1, 4});
          const at::Tensor s = sine.to(at::kDouble).view({6, 1, 4});
          return Tensors{
              torch::cat({halves[0] * c - halves[1] * s, halves[0] * s + halves[1] * c}, -1)};
        });
  }
  EXPECT_THROW(rotary_embedding(torch::zeros({2, 5, 3, 8}), cosine, sine), UsageError);
}

// [batch, positions, heads, width] by its definition.
at::Tensor exact_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           bool causal) {
  const at::Tensor q = query.transpose(1, 2);
  const at::Tensor k = key.transpose(1, 2);
  at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) {
    const at::Tensor future =
        torch::ones({q.size(2), k.size(2)}, torch::kBool).triu(/*diagonal=*/1);
    scores = scores.masked_fill(future, -INFINITY);
  }
  return scores.softmax(-1).matmul(value.transpose(1, 2)).transpose(1, 2);
}

TEST_F(OpsTest, AttentionLooksBackOnlyWhereItIsCausal) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const bool causal : {true, false}) {
      expect_same(
          {random({2, 40, 3, 16}), random({2, 40, 3, 16}), random({2, 40, 3, 16})}, type,
          [&](const Tensors& in) {
            return Tensors{attention(in[0], in[1], in[2], {.causal = causal})};
          },
          [&](const Tensors& in) { return Tensors{exact_attention(in[0], in[1], in[2], causal)}; });
    }
  }
}

TEST_F(OpsTest, SelfAttentionProjectsAndAttends) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto layout : {WeightLayout::kOutputsFirst, WeightLayout::kInputsFirst}) {
      for (const bool with_bias : {true, false}) {
        const int64_t heads = 2;
        const int64_t inner = 64;
        const bool outputs_first = layout == WeightLayout::kOutputsFirst;
        const at::Tensor weight =
            (outputs_first ? random({3 * inner, 24}) : random({24, 3 * inner})) / 5;
        const at::Tensor bias = with_bias ? random({3 * inner}) : at::Tensor();
        expect_same(
            {random({2, 64, 24}), weight, bias}, type,
            [&](const Tensors& in) {
              return Tensors{self_attention(in[0], in[1], in[2], heads, {}, layout)};
            },
            [&](const Tensors& in) {
              at::Tensor packed = in[0].matmul(outputs_first ? in[1].t() : in[1]);
              if (in[2].defined()) packed = packed + in[2];
              const auto parts = packed.view({2, 64, 3, heads, inner / heads}).unbind(2);
              return Tensors{
                  exact_attention(parts[0], parts[1], parts[2], true).reshape({2, 64, inner})};
            });
      }
    }
  }
}

TEST_F(OpsTest, EmbeddingAddsTokensAndPositions) {
  const at::Tensor tokens = torch::randint(50, {3, 9});
  for (const auto type : kTypes) {
    for (const bool positions : {true, false}) {
      for (const int64_t width : {16, 6}) {
        const at::Tensor table = positions ? random({12, width}) : at::Tensor();
        expect_same(
            {tokens, random({50, width}), table}, type,
            [](const Tensors& in) { return Tensors{embedding(in[0], in[1], in[2])}; },
            [](const Tensors& in) {
              const at::Tensor found = torch::embedding(in[1], in[0]);
              return Tensors{in[2].defined() ? found + in[2].narrow(0, 0, 9) : found};
            });
      }
    }
  }
}

}  // namespace
}  // namespace accelerate::ops
