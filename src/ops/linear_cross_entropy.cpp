#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kWhere = "ops::linear_cross_entropy";
constexpr int64_t kChunkBytes = int64_t{1} << 30;

// The dtype in which sums are kept.
at::ScalarType wide_of(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// The loss of each row into `loss` and the gradient of their sum over `logits`, by operators of
// libtorch.
void compose_cross_entropy(at::Tensor& logits, const at::Tensor& target, at::Tensor& loss,
                           const LinearCrossEntropyOptions& options, bool gradient) {
  const at::Tensor x = logits.to(loss.scalar_type());
  const at::Tensor kept = target.ne(options.ignore_index);
  const at::Tensor index = target.masked_fill(kept.logical_not(), 0).unsqueeze(1);
  const at::Tensor log_sum = x.logsumexp(1, true);
  const double certain = 1.0 - options.label_smoothing;
  at::Tensor rows = certain * (log_sum - x.gather(1, index));
  rows += options.label_smoothing * (log_sum - x.mean(1, true));
  rows += options.z_loss * log_sum.square();
  loss.copy_(rows.squeeze(1).masked_fill(kept.logical_not(), 0));
  if (!gradient) return;
  at::Tensor found = (x - log_sum).exp_().mul_(1 + 2 * options.z_loss * log_sum);
  found -= options.label_smoothing / static_cast<double>(x.size(1));
  found.scatter_add_(1, index, at::full_like(index, -certain, found.options()));
  logits.copy_(found.masked_fill_(kept.logical_not().unsqueeze(1), 0));
}

// to = from * scale, or to += from * scale. In float32: a scale rounded to half precision would
// make all gradients wrong alike.
void scale_into(const at::Tensor& to, const at::Tensor& from, const at::Tensor& scale, bool add) {
  const auto* kernels = scale.scalar_type() == at::kFloat ? kernels_for(to) : nullptr;
  if (kernels != nullptr && to.is_contiguous() && from.is_contiguous()) {
    return kernels->scale(to, from, scale, add);
  }
  const at::Tensor product = from.to(scale.scalar_type()) * scale;
  if (add) {
    to.add_(product);
  } else {
    to.copy_(product);
  }
}

struct LinearCrossEntropy : FirstOrderFunction<LinearCrossEntropy> {
  static constexpr const char* kName = kWhere;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& target,
                            int64_t ignore_index, double label_smoothing, double z_loss,
                            int64_t chunk_rows, bool row_gradient, bool weight_gradient) {
    const LinearCrossEntropyOptions options{
        .ignore_index = ignore_index, .label_smoothing = label_smoothing, .z_loss = z_loss};
    const at::ScalarType wide = wide_of(rows.scalar_type());
    const bool gradient = row_gradient || weight_gradient;
    const auto* kernels = wide == at::kFloat ? kernels_for(rows) : nullptr;
    at::Tensor loss = at::empty({rows.size(0)}, rows.options().dtype(wide));
    at::Tensor grad_rows = row_gradient ? at::empty_like(rows) : at::Tensor();
    at::Tensor grad_weight =
        weight_gradient ? at::empty_like(weight, weight.options().dtype(wide)) : at::Tensor();
    if (weight_gradient && rows.size(0) == 0) grad_weight.zero_();
    at::Tensor logits =
        at::empty({std::min(chunk_rows, rows.size(0)), weight.size(0)}, rows.options());
    for (int64_t first = 0; first < rows.size(0); first += chunk_rows) {
      const int64_t count = std::min(chunk_rows, rows.size(0) - first);
      const at::Tensor chunk = rows.narrow(0, first, count);
      at::Tensor own_logits = logits.narrow(0, 0, count);
      at::Tensor own_loss = loss.narrow(0, first, count);
      const at::Tensor own_target = target.narrow(0, first, count);
      product_into(own_logits, chunk, weight.t());
      if (kernels != nullptr) {
        kernels->cross_entropy(own_logits, own_target, own_loss, ignore_index, label_smoothing,
                               z_loss, gradient);
      } else {
        compose_cross_entropy(own_logits, own_target, own_loss, options, gradient);
      }
      if (row_gradient) {
        at::Tensor part = grad_rows.narrow(0, first, count);
        product_into(part, own_logits, weight);
      }
      if (weight_gradient) {
        (first == 0 ? set_product : add_product)(grad_weight, own_logits, chunk);
      }
    }
    // The division comes last, in float32: gradients of logits divided by many rows would leave the
    // range of float16.
    const at::Tensor count = target.ne(ignore_index).sum().to(wide);
    // Where all rows are ignored the loss is not a number, but the gradients are zero, as torch's
    // are.
    const at::Tensor share = count.reciprocal().nan_to_num_(0, /*posinf=*/0);
    context->save_for_backward({weight, grad_rows, grad_weight, share});
    return loss.sum() / count;
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor scale = upstream[0] * saved[3];
    variable_list result(9);
    if (saved[1].defined() && context->needs_input_grad(0)) {
      result[0] = at::empty_like(saved[1]);
      scale_into(result[0], saved[1], scale, false);
    }
    if (saved[2].defined() && context->needs_input_grad(1)) {
      at::Tensor own = float_gradient_of(saved[0]);
      if (own.defined()) note_write(own);
      result[1] = own.defined() ? at::Tensor() : at::empty_like(saved[0]);
      scale_into(own.defined() ? own : result[1], saved[2], scale, own.defined());
    }
    return result;
  }
};

void require_fitting(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target) {
  if (target.scalar_type() != at::kLong || input.dim() < 1 ||
      target.numel() != input.numel() / std::max<int64_t>(1, input.size(-1))) {
    throw UsageError({.what = "linear_cross_entropy() takes one int64 target for each row of the "
                              "input",
                      .where = kWhere});
  }
  if (weight.dim() != 2 || weight.size(1) != input.size(-1)) {
    throw UsageError({.what = "the weight has the shape " + c10::str(weight.sizes()) +
                              ", the input has " + c10::str(input.sizes()),
                      .where = kWhere,
                      .hint = "a weight is [classes, features]"});
  }
  require_same_device(weight, input, "weight", kWhere);
  require_same_device(target, input, "target", kWhere);
}

void require_usable(const LinearCrossEntropyOptions& options) {
  const bool smoothing = options.label_smoothing >= 0 && options.label_smoothing <= 1;
  if (smoothing && options.z_loss >= 0 && options.chunk_rows >= 0) return;
  throw UsageError({.what = !smoothing               ? "label_smoothing must lie between 0 and 1"
                            : !(options.z_loss >= 0) ? "z_loss must be 0 or more"
                                                     : "chunk_rows must be 0 or more",
                    .where = "LinearCrossEntropyOptions"});
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                const at::Tensor& target,
                                const LinearCrossEntropyOptions& options) {
  require_fitting(input, weight, target);
  require_usable(options);
  const at::Tensor rows = autocast_value(input).reshape({-1, input.size(-1)}).contiguous();
  const at::Tensor own_weight = autocast_value(weight);
  const int64_t row_bytes = weight.size(0) * static_cast<int64_t>(rows.element_size());
  const int64_t chunk =
      options.chunk_rows > 0
          ? options.chunk_rows
          : std::max<int64_t>(256, kChunkBytes / std::max<int64_t>(1, row_bytes) / 1024 * 1024);
  return LinearCrossEntropy::apply(rows, own_weight, target.reshape({-1}).contiguous(),
                                   options.ignore_index, options.label_smoothing, options.z_loss,
                                   chunk, wants_gradient(rows), wants_gradient(own_weight));
}

}  // namespace accelerate::ops
