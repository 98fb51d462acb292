// Activations by the names that configurations have for them.
#include <ATen/ATen.h>
#include <accelerate/errors.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <string>

#include "transformers/models/layers.h"

namespace accelerate::test {
namespace {

double normal_below(double x) { return 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2)); }
double gelu(double x) { return x * normal_below(x); }
double tanh_gelu(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Activations, AreThoseOfTheirNames) {
  const std::map<std::string, std::function<double(double)>> formulas{
      {"gelu", gelu},
      {"gelu_10", [](double x) { return std::clamp(gelu(x), -10.0, 10.0); }},
      {"gelu_accurate", tanh_gelu},
      {"gelu_fast", tanh_gelu},
      {"gelu_new", tanh_gelu},
      {"gelu_python", gelu},
      {"gelu_python_tanh", tanh_gelu},
      {"gelu_pytorch_tanh", tanh_gelu},
      {"hardswish", [](double x) { return x * std::clamp(x + 3.0, 0.0, 6.0) / 6.0; }},
      {"laplace",
       [](double x) {
         return 0.5 * (1.0 + std::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)));
       }},
      {"leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"linear", [](double x) { return x; }},
      {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"quick_gelu", [](double x) { return x * sigmoid(1.702 * x); }},
      {"relu", [](double x) { return std::max(x, 0.0); }},
      {"relu2", [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); }},
      {"relu6", [](double x) { return std::clamp(x, 0.0, 6.0); }},
      {"sigmoid", sigmoid},
      {"silu", [](double x) { return x * sigmoid(x); }},
      {"sqrtsoftplus", [](double x) { return std::sqrt(std::log1p(std::exp(x))); }},
      {"swish", [](double x) { return x * sigmoid(x); }},
      {"tanh", [](double x) { return std::tanh(x); }}};
  for (const auto& [name, formula] : formulas) {
    const auto act = transformers::activation(name, "hidden_act", "config.json");
    for (const double x : {-12.0, -3.5, -0.7, 0.0, 0.3, 2.0, 7.5, 12.0}) {
      EXPECT_NEAR(act(at::scalar_tensor(x, at::kDouble)).item<double>(), formula(x), 1e-9)
          << name << " of " << x;
    }
  }
}

TEST(Activations, AnUnknownNameIsRefusedWithThoseThereAre) {
  EXPECT_THAT([] { transformers::activation("geluu", "hidden_act", "config.json"); },
              testing::ThrowsMessage<DataError>(
                  testing::AllOf(testing::HasSubstr("'hidden_act' in config.json is 'geluu'"),
                                 testing::HasSubstr("gelu_new, "))));
}

}  // namespace
}  // namespace accelerate::test
