#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "compat/touched.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BiasGelu : FirstOrderFunction<BiasGelu> {
  static constexpr const char* kName = "ops::gelu";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& own_bias, bool tanh) {
    const at::Tensor bias = own_bias.value_or(at::Tensor());
    context->save_for_backward({input, bias});
    context->saved_data["tanh"] = tanh;
    const compat::Touch touch({bias}, kName);
    return kernels_for(input)->gelu_forward(input, bias, tanh);
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const compat::Touch touch({saved[1]}, kName);
    const bool wants_bias = saved[1].defined() && context->needs_input_grad(1);
    auto found = kernels_for(saved[0])->gelu_backward(
        for_kernels(upstream[0]), saved[0], saved[1], context->saved_data["tanh"].toBool(),
        wants_bias ? gradient_sum_of(saved[1]) : device::ColumnSum{});
    return {found[0], found[1], at::Tensor()};
  }
};

struct SwiGlu : FirstOrderFunction<SwiGlu> {
  static constexpr const char* kName = "ops::swiglu";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    return kernels_for(input)->swiglu_forward(input);
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    return {kernels_for(saved[0])->swiglu_backward(for_kernels(upstream[0]), saved[0])};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& input, const at::Tensor& bias, Gelu kind) {
  require_row(bias, input, "bias", "ops::gelu");
  const at::Tensor dense = for_kernels(input);
  const at::ScalarType weights = bias.defined() ? bias.scalar_type() : input.scalar_type();
  if (row_kernels_for(dense, weights) != nullptr) {
    return BiasGelu::apply(dense, optional_of(for_kernels(bias)), kind == Gelu::kTanh);
  }
  const at::Tensor sum = bias.defined() ? input + bias.to(input.scalar_type()) : input;
  return at::gelu(sum, kind == Gelu::kTanh ? "tanh" : "none");
}

at::Tensor swiglu(const at::Tensor& input) {
  if (input.dim() == 0 || input.size(-1) % 2 != 0) {
    throw UsageError({.what = "swiglu() takes a last dimension that holds two halves",
                      .hint = "give it the result of one linear layer of twice the width"});
  }
  const at::Tensor dense = for_kernels(input);
  const at::ScalarType type = input.scalar_type();
  const bool known = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  if (known && input.numel() > 0 && kernels_for(dense) != nullptr) return SwiGlu::apply(dense);
  const auto halves = input.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

}  // namespace accelerate::ops
