#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <array>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "compat/touched.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOperation = "a norm of accelerate::ops";

enum class Norm { kLayer, kRms };

// Returns {sum, normed}; `sum` is the branch itself where nothing is added to it.
struct ResidualNorm : FirstOrderFunction<ResidualNorm> {
  static constexpr const char* kName = kOperation;

  static variable_list forward(AutogradContext* context,
                               const std::optional<at::Tensor>& own_residual,
                               const at::Tensor& branch, const at::Tensor& weight,
                               const std::optional<at::Tensor>& own_bias,
                               const std::optional<at::Tensor>& own_branch_bias, double eps,
                               bool rms) {
    const at::Tensor residual = own_residual.value_or(at::Tensor());
    const at::Tensor bias = own_bias.value_or(at::Tensor());
    const at::Tensor branch_bias = own_branch_bias.value_or(at::Tensor());
    const compat::Touch touch({branch_bias, weight, bias}, kName);
    auto norm = row_kernels_for(branch, weight.scalar_type())
                    ->norm_forward(residual, branch, branch_bias, weight, bias, eps, rms);
    const bool added = norm.sum.defined();
    context->save_for_backward(
        {added ? norm.sum : branch, weight, bias, branch_bias, norm.mean, norm.rstd});
    context->saved_data["residual"] = residual.defined();
    context->set_materialize_grads(false);
    if (!added) return {norm.output};
    return {norm.output, norm.sum};
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor grad_output =
        upstream[0].defined() ? for_kernels(upstream[0]) : at::zeros_like(sum);
    const at::Tensor grad_sum = upstream.size() > 1 ? for_kernels(upstream[1]) : at::Tensor();
    const bool residual = context->saved_data["residual"].toBool();
    // Inputs are counted without those that are missing; the branch comes before the weight.
    size_t input = residual ? 2 : 1;
    const auto next_sum = [&](const at::Tensor& parameter) {
      if (!parameter.defined() || !context->needs_input_grad(input++)) return device::ColumnSum{};
      return gradient_sum_of(parameter);
    };
    const std::array<device::ColumnSum, 3> sums{next_sum(weight), next_sum(saved[2]),
                                                next_sum(saved[3])};
    const compat::Touch touch({weight}, kName);
    auto found = kernels_for(sum)->norm_backward(grad_output, grad_sum, sum, weight, saved[4],
                                                 saved[5], sums);
    return {residual ? found[0] : at::Tensor(),
            found[0],
            found[1],
            found[2],
            found[3],
            at::Tensor(),
            at::Tensor()};
  }
};

at::Tensor composed(Norm kind, const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, double eps) {
  // Sums in float32, as the kernels have them.
  const at::ScalarType type = input.scalar_type();
  const bool half = type == at::kHalf || type == at::kBFloat16;
  const at::ScalarType wide = half ? at::kFloat : type;
  const at::Tensor x = input.to(wide);
  const at::Tensor own_weight = weight.to(wide);
  const int64_t width = input.size(-1);
  at::Tensor output;
  if (kind == Norm::kLayer) {
    output = at::layer_norm(x, {width}, own_weight, bias.defined() ? bias.to(wide) : bias, eps);
  } else {
    output = x * at::rsqrt(x.square().mean(-1, true) + eps) * own_weight;
    if (bias.defined()) output = output + bias.to(wide);
  }
  return output.to(type);
}

std::tuple<at::Tensor, at::Tensor> residual_norm(Norm kind, const at::Tensor& residual,
                                                 const at::Tensor& branch, const at::Tensor& weight,
                                                 const at::Tensor& bias, double eps,
                                                 const at::Tensor& branch_bias) {
  if (!weight.defined()) {
    throw UsageError({.what = "the weight is missing", .where = kOperation, .hint = "ones"});
  }
  require_row(weight, branch, "weight", kOperation);
  require_row(bias, branch, "bias", kOperation);
  require_row(branch_bias, branch, "branch_bias", kOperation);
  const at::Tensor dense = for_kernels(branch);
  const bool alike = (!residual.defined() ||
                      (residual.scalar_type() == dense.scalar_type() &&
                       residual.sizes() == dense.sizes() && residual.device() == dense.device())) &&
                     (!bias.defined() || bias.scalar_type() == weight.scalar_type()) &&
                     (!branch_bias.defined() || branch_bias.scalar_type() == weight.scalar_type());
  if (alike && row_kernels_for(dense, weight.scalar_type()) != nullptr) {
    auto found =
        ResidualNorm::apply(optional_of(for_kernels(residual)), dense, for_kernels(weight),
                            optional_of(for_kernels(bias)), optional_of(for_kernels(branch_bias)),
                            eps, kind == Norm::kRms);
    return {found.size() > 1 ? found[1] : branch, found[0]};
  }
  at::Tensor sum = branch;
  if (branch_bias.defined()) sum = sum + branch_bias.to(branch.scalar_type());
  if (residual.defined()) sum = residual + sum;
  return {sum, composed(kind, sum, weight, bias, eps)};
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  return std::get<1>(residual_norm(Norm::kLayer, {}, input, weight, bias, eps, {}));
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps) {
  return std::get<1>(residual_norm(Norm::kRms, {}, input, weight, {}, eps, {}));
}

std::tuple<at::Tensor, at::Tensor> residual_layer_norm(const at::Tensor& residual,
                                                       const at::Tensor& branch,
                                                       const at::Tensor& weight,
                                                       const at::Tensor& bias, double eps,
                                                       const at::Tensor& branch_bias) {
  return residual_norm(Norm::kLayer, residual, branch, weight, bias, eps, branch_bias);
}

std::tuple<at::Tensor, at::Tensor> residual_rms_norm(const at::Tensor& residual,
                                                     const at::Tensor& branch,
                                                     const at::Tensor& weight, double eps,
                                                     const at::Tensor& branch_bias) {
  return residual_norm(Norm::kRms, residual, branch, weight, {}, eps, branch_bias);
}

}  // namespace accelerate::ops
