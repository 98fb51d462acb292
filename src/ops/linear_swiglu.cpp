#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <utility>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kSwigluOperation = "ops::linear_swiglu";

// Gate and rest of rows that hold both.
std::pair<at::Tensor, at::Tensor> halves_of(const at::Tensor& packed) {
  const int64_t inner = packed.size(1) / 2;
  return {packed.narrow(1, 0, inner), packed.narrow(1, inner, inner)};
}

// Both products go into the halves of one matrix, which the kernel reads, and which is all that is
// kept beside the input.
struct LinearSwiGlu : FirstOrderFunction<LinearSwiGlu> {
  static constexpr const char* kName = kSwigluOperation;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor packed = at::empty({rows.size(0), 2 * gate.size(0)}, rows.options());
    auto [of_gate, of_up] = halves_of(packed);
    at::mm_out(of_gate, rows, gate.t());
    at::mm_out(of_up, rows, up.t());
    context->save_for_backward({rows, gate, up, packed});
    return kernels_for(packed)->swiglu_forward(packed);
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &gate = saved[1], &up = saved[2], &packed = saved[3];
    const at::Tensor grad = kernels_for(packed)->swiglu_backward(for_kernels(upstream[0]), packed);
    const auto [of_gate, of_up] = halves_of(grad);
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = at::mm(of_gate, gate).addmm_(of_up, up);
    if (context->needs_input_grad(1)) {
      result[1] = weight_gradient(gate, rows, of_gate, WeightLayout::kOutputsFirst);
    }
    if (context->needs_input_grad(2)) {
      result[2] = weight_gradient(up, rows, of_up, WeightLayout::kOutputsFirst);
    }
    return result;
  }
};

bool is_kernel_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

at::Tensor linear_swiglu(const at::Tensor& input, const at::Tensor& gate_weight,
                         const at::Tensor& up_weight) {
  const bool fits = input.dim() > 0 && gate_weight.dim() == 2 &&
                    gate_weight.sizes() == up_weight.sizes() &&
                    gate_weight.size(1) == input.size(-1);
  if (!fits) {
    throw UsageError({.what = "linear_swiglu() takes input [..., features] and two weights "
                              "[inner, features]",
                      .where = kSwigluOperation,
                      .hint = "the weights of the gate and of the values have one shape"});
  }
  require_same_device(gate_weight, input, "gate_weight", kSwigluOperation);
  require_same_device(up_weight, input, "up_weight", kSwigluOperation);
  const at::Tensor own_input = autocast_value(input);
  const at::Tensor gate = autocast_value(gate_weight);
  const at::Tensor up = autocast_value(up_weight);
  const at::ScalarType type = own_input.scalar_type();
  const bool alike = is_kernel_type(type) && gate.scalar_type() == type && up.scalar_type() == type;
  if (alike && input.numel() > 0 && gate.numel() > 0 && kernels_for(own_input) != nullptr) {
    auto sizes = input.sizes().vec();
    sizes.back() = gate.size(0);
    return LinearSwiGlu::apply(own_input.reshape({-1, input.size(-1)}), gate, up).view(sizes);
  }
  return at::silu(ops::linear(own_input, gate)) * ops::linear(own_input, up);
}

}  // namespace accelerate::ops
