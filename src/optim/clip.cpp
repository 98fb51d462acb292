#include "accelerate/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "optim/small_tensors.h"
#include "tensor/gradient_values.h"

namespace accelerate {
namespace {

void require_bound(double bound, const char* name, const char* where) {
  if (bound >= 0) return;
  throw UsageError({.what = std::string(name) + " must be 0 or more, not " + std::to_string(bound),
                    .where = where,
                    .hint = "leave the call out if nothing should be clipped"});
}

// Gradients that one operator on a list of tensors can take.
struct GradientList {
  c10::Device device;
  c10::ScalarType dtype;
  std::vector<at::Tensor> gradients{};
};

std::vector<GradientList> gradients_of(at::TensorList parameters) {
  std::vector<GradientList> lists;
  for (at::Tensor& gradient : distinct_gradients(parameters)) {
    GradientList* list = nullptr;
    for (GradientList& known : lists) {
      if (known.device == gradient.device() && known.dtype == gradient.scalar_type()) list = &known;
    }
    if (list == nullptr) {
      list = &lists.emplace_back(
          GradientList{.device = gradient.device(), .dtype = gradient.scalar_type()});
    }
    list->gradients.push_back(std::move(gradient));
  }
  return lists;
}

bool all_on_cpu(const std::vector<GradientList>& lists) {
  return std::ranges::all_of(lists, [](const GradientList& list) { return list.device.is_cpu(); });
}

// Splits off the gradients that are small enough to go without torch's kernels.
std::vector<at::Tensor> take_large(const std::vector<at::Tensor>& gradients,
                                   std::vector<at::Tensor>& small) {
  std::vector<at::Tensor> large;
  for (const at::Tensor& gradient : gradients) {
    (is_small_on_cpu(gradient) ? small : large).push_back(gradient);
  }
  return large;
}

// Norms of half precision are computed and kept in float32: the sum of squares soon leaves the
// range of float16.
c10::ScalarType type_of_norm(const GradientList& list) {
  const c10::ScalarType real = at::toRealValueType(list.dtype);
  return real == at::kHalf || real == at::kBFloat16 ? at::kFloat : real;
}

c10::ScalarType type_of_norm(const std::vector<GradientList>& lists) {
  c10::ScalarType widest = type_of_norm(lists[0]);
  for (const GradientList& list : lists) widest = c10::promoteTypes(widest, type_of_norm(list));
  return widest;
}

std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& gradients, double norm_type,
                                 c10::ScalarType type) {
  // The type of complex gradients is not the one that their norm has.
  if (gradients[0].is_complex()) return at::_foreach_norm(gradients, norm_type);
  return at::_foreach_norm(gradients, norm_type, type);
}

// Values in the memory of the CPU can be read at no cost.
double euclidean_norm_on_cpu(const std::vector<GradientList>& lists) {
  double squares = 0;
  for (const GradientList& list : lists) {
    std::vector<at::Tensor> small;
    const std::vector<at::Tensor> large = take_large(list.gradients, small);
    for (const at::Tensor& gradient : small) squares += sum_of_squares(gradient);
    if (large.empty()) continue;
    for (const at::Tensor& norm : norms_of(large, 2.0, type_of_norm(list))) {
      squares += std::pow(norm.item<double>(), 2);
    }
  }
  return std::sqrt(squares);
}

at::Tensor norm_by_lists(const std::vector<GradientList>& lists, double norm_type,
                         at::TensorOptions place) {
  std::vector<at::Tensor> norms;
  for (const GradientList& list : lists) {
    for (const at::Tensor& norm : norms_of(list.gradients, norm_type, type_of_norm(list))) {
      norms.push_back(brought_to(place, norm));
    }
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

at::Tensor norm_of(const std::vector<GradientList>& lists, const ClipNormOptions& options) {
  if (lists.empty()) return at::zeros({});
  const auto place = at::TensorOptions(type_of_norm(lists)).device(lists[0].device);
  at::Tensor total = options.norm_type == 2.0 && all_on_cpu(lists)
                         ? at::full({}, euclidean_norm_on_cpu(lists), place)
                         : norm_by_lists(lists, options.norm_type, place);
  if (options.error_if_nonfinite && !std::isfinite(total.item<double>())) {
    throw UsageError({.what = "the norm of the gradients is " +
                              std::to_string(total.item<double>()) + ": they cannot be clipped",
                      .where = "clip_grad_norm_",
                      .hint = "look for the step that made them so, or leave out "
                              "error_if_nonfinite"});
  }
  return total;
}

void scale_on_cpu(const std::vector<GradientList>& lists, const at::Tensor& factor) {
  const auto value = factor.item<double>();
  if (value >= 1.0) return;  // not so for a factor that is not a number
  for (const GradientList& list : lists) {
    std::vector<at::Tensor> small;
    const std::vector<at::Tensor> large = take_large(list.gradients, small);
    for (const at::Tensor& gradient : small) scale_in_place(gradient, value);
    if (!large.empty()) at::_foreach_mul_(large, factor);
  }
}

void scale(const std::vector<GradientList>& lists, double max_norm, const at::Tensor& total_norm) {
  const at::Tensor factor = (max_norm / (total_norm + 1e-6)).clamp_max(1.0);
  if (factor.device().is_cpu() && all_on_cpu(lists)) return scale_on_cpu(lists, factor);
  for (const GradientList& list : lists) {
    at::_foreach_mul_(list.gradients, brought_to(list.device, factor));
  }
}

}  // namespace

at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options) {
  const at::NoGradGuard no_grad;
  return norm_of(gradients_of(parameters), options);
}

void clip_grads_with_norm_(at::TensorList parameters, double max_norm,
                           const at::Tensor& total_norm) {
  require_bound(max_norm, "max_norm", "clip_grads_with_norm_");
  const at::NoGradGuard no_grad;
  const auto lists = gradients_of(parameters);
  scale(lists, max_norm, total_norm);
}

at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                           const ClipNormOptions& options) {
  require_bound(max_norm, "max_norm", "clip_grad_norm_");
  const at::NoGradGuard no_grad;
  const auto lists = gradients_of(parameters);
  const at::Tensor total = norm_of(lists, options);
  scale(lists, max_norm, total);
  return total;
}

void clip_grad_value_(at::TensorList parameters, double clip_value) {
  require_bound(clip_value, "clip_value", "clip_grad_value_");
  const at::NoGradGuard no_grad;
  for (const GradientList& list : gradients_of(parameters)) {
    at::_foreach_clamp_min_(list.gradients, -clip_value);
    at::_foreach_clamp_max_(list.gradients, clip_value);
  }
}

}  // namespace accelerate
