#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "accelerate/ops.h"
#include "device/device_backend.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows [n, features] with or without kernels of ours: it is here for the gradients, which go
// straight into float32 where the weight has such a gradient.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const std::optional<at::Tensor>& own_bias,
                            bool inputs_first) {
    const at::Tensor bias = own_bias.value_or(at::Tensor());
    context->save_for_backward({rows, weight, bias});
    context->saved_data["inputs_first"] = inputs_first;
    return product(rows, inputs_first ? weight : weight.t(), bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto layout = context->saved_data["inputs_first"].toBool() ? WeightLayout::kInputsFirst
                                                                     : WeightLayout::kOutputsFirst;
    const at::Tensor grad = for_kernels(gradients[0]);
    variable_list result(4);
    if (context->needs_input_grad(0)) result[0] = product(grad, outputs_first(saved[1], layout));
    if (context->needs_input_grad(1)) {
      result[1] = weight_gradient(saved[1], saved[0], grad, layout);
    }
    if (saved[2].defined() && context->needs_input_grad(2)) {
      const auto sums = grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      // Gradients of gradients come from operators that have some.
      const auto* kernels =
          at::GradMode::is_enabled() ? nullptr : row_kernels_for(grad, saved[2].scalar_type());
      result[2] = kernels != nullptr
                      ? kernels->concatenate({grad}, false, gradient_sum_of(saved[2]))[1]
                      : delivered(saved[2], grad.sum(0, false, sums));
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout) {
  const at::Tensor own_input = autocast_value(input);
  const at::Tensor own_weight = autocast_value(weight);
  const at::Tensor own_bias = autocast_value(bias);
  // A node of our own is worth it where gradients can be added in float32; else libtorch's is as
  // good.
  if (!device::adds_in_float(input.device().type())) {
    return at::linear(own_input, outputs_first(own_weight, layout), own_bias);
  }
  auto sizes = input.sizes().vec();
  const bool inputs_first = layout == WeightLayout::kInputsFirst;
  sizes.back() = weight.size(inputs_first ? 1 : 0);
  return Linear::apply(own_input.reshape({-1, input.size(-1)}), own_weight, optional_of(own_bias),
                       inputs_first)
      .view(sizes);
}

}  // namespace accelerate::ops
