#include "ops/gradients.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "compat/cuda_plugin.h"

namespace accelerate::ops {
namespace {

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

}  // namespace

const compat::CudaKernels* kernels_for(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  const compat::CudaPlugin* plugin = compat::cuda_plugin();
  return plugin == nullptr ? nullptr : plugin->kernels;
}

const compat::CudaKernels* row_kernels_for(const at::Tensor& tensor, at::ScalarType weights) {
  const compat::CudaKernels* kernels = kernels_for(tensor);
  return kernels != nullptr && kernels->fits_rows(tensor, weights) ? kernels : nullptr;
}

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && at::GradMode::is_enabled() && tensor.requires_grad();
}

at::Tensor float_gradient_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !is_half(parameter.scalar_type()) || !parameter.is_leaf()) return {};
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.scalar_type() != at::kFloat) return {};
  return gradient;
}

compat::ColumnSum gradient_sum_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.requires_grad()) return {};
  return {.wanted = true, .dtype = parameter.scalar_type(), .add_to = float_gradient_of(parameter)};
}

void add_product(at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() == to.scalar_type()) {
    to.addmm_(left.t(), right);
  } else if (to.is_cuda() && to.scalar_type() == at::kFloat) {
    at::addmm_outf(to, left.t(), right, at::kFloat, 1, 1, to);
  } else {
    to.addmm_(left.t().to(to.scalar_type()), right.to(to.scalar_type()));
  }
}

at::Tensor product_gradient(const at::Tensor& parameter, const at::Tensor& left,
                            const at::Tensor& right) {
  at::Tensor own = float_gradient_of(parameter);
  if (!own.defined()) return left.t().mm(right);
  add_product(own, left, right);
  return {};
}

at::Tensor delivered(const at::Tensor& parameter, const at::Tensor& gradient) {
  at::Tensor own = float_gradient_of(parameter);
  if (!own.defined()) return gradient.to(parameter.scalar_type());
  own.add_(gradient);
  return {};
}

at::Tensor autocast_value(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace accelerate::ops
