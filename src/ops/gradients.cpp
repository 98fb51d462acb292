#include "ops/gradients.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "compat/touched.h"
#include "device/device_backend.h"

namespace accelerate::ops {
namespace {

bool is_half_type(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

bool measures_products() {
  static const bool on = environment_flag("ACCELERATE_TUNE_PRODUCTS");
  // What is the fastest way differs from run to run, and ways differ in their rounding.
  return on && !at::globalContext().deterministicAlgorithms();
}

// Makes the product if it is to be measured, and can be. Not where autograd follows: it sees
// nothing of it.
bool measured(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
              const at::Tensor& bias, bool add) {
  if (!measures_products() || at::GradMode::is_enabled()) return false;
  const device::CudaKernels* kernels = kernels_for(to);
  if (kernels == nullptr) return false;
  const compat::Touch touch({left, right, bias}, "a measured product");
  if (!kernels->measured_product(to, left, right, bias, add)) return false;
  note_write(to);
  return true;
}

}  // namespace

void note_write(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

const device::CudaKernels* row_kernels_for(const at::Tensor& tensor, at::ScalarType weights) {
  const device::CudaKernels* kernels = kernels_for(tensor);
  return kernels != nullptr && kernels->fits_rows(tensor, weights) ? kernels : nullptr;
}

at::Tensor for_kernels(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor dense = tensor.contiguous();
  constexpr uintptr_t kAccess = 16;
  if (kernels_for(dense) == nullptr) return dense;
  const compat::Touch touch({dense}, "a kernel");
  return reinterpret_cast<uintptr_t>(dense.data_ptr()) % kAccess == 0 ? dense : dense.clone();
}

void require_same_device(const at::Tensor& tensor, const at::Tensor& other, const char* name,
                         const char* where) {
  if (!tensor.defined() || tensor.device() == other.device()) return;
  throw UsageError({.what = std::string(name) + " is on " + tensor.device().str() +
                            ", the values are on " + other.device().str(),
                    .where = where,
                    .hint = "move it there by to(device)"});
}

void require_row(const at::Tensor& row, const at::Tensor& values, const char* name,
                 const char* where) {
  if (!row.defined()) return;
  require_same_device(row, values, name, where);
  if (values.dim() > 0 && row.dim() == 1 && row.size(0) == values.size(-1)) return;
  throw UsageError({.what = std::string(name) + " has the shape " + c10::str(row.sizes()) +
                            ", the values have " + c10::str(values.sizes()),
                    .where = where,
                    .hint = "give it one element for each place of the last dimension"});
}

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && at::GradMode::is_enabled() && tensor.requires_grad();
}

at::Tensor float_gradient_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !is_half_type(parameter.scalar_type()) || !parameter.is_leaf())
    return {};
  const at::Tensor& gradient = parameter.grad();
  const bool fits = gradient.defined() && gradient.scalar_type() == at::kFloat &&
                    gradient.sizes() == parameter.sizes() && gradient.is_contiguous();
  return fits ? gradient : at::Tensor();
}

device::ColumnSum gradient_sum_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.requires_grad()) return {};
  const at::Tensor own = float_gradient_of(parameter);
  if (own.defined()) note_write(own);
  return {.wanted = true, .dtype = parameter.scalar_type(), .add_to = own};
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias) {
  if (measures_products() && kernels_for(left) != nullptr && !at::GradMode::is_enabled()) {
    const at::Tensor to = at::empty({left.size(0), right.size(1)}, left.options());
    if (measured(to, left, right, bias, false)) return to;
  }
  return bias.defined() ? at::addmm(bias, left, right) : at::mm(left, right);
}

void product_into(at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  if (!measured(to, left, right, {}, false)) at::mm_out(to, left, right);
}

void add_product(at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  if (measured(to, left.t(), right, {}, true)) return;
  if (left.scalar_type() == to.scalar_type()) {
    to.addmm_(left.t(), right);
  } else if (to.scalar_type() == at::kFloat && device::adds_in_float(to.device().type())) {
    at::addmm_outf(to, left.t(), right, at::kFloat, 1, 1, to);
  } else {
    to.addmm_(left.t().to(to.scalar_type()), right.to(to.scalar_type()));
  }
}

void set_product(at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  if (measured(to, left.t(), right, {}, false)) return;
  if (to.scalar_type() == at::kFloat && is_half_type(left.scalar_type()) &&
      device::adds_in_float(to.device().type())) {
    at::mm_outf(left.t(), right, at::kFloat, to);
  } else {
    to.zero_();
    add_product(to, left, right);
  }
}

at::Tensor product_gradient(const at::Tensor& parameter, const at::Tensor& left,
                            const at::Tensor& right) {
  at::Tensor own = float_gradient_of(parameter);
  if (!own.defined()) return product(left.t(), right);
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
  if (compat::touched_storage(tensor) != nullptr) {  // the cache would keep all of it
    return at::autocast::is_eligible(tensor, device)
               ? tensor.to(at::autocast::get_autocast_dtype(device))
               : tensor;
  }
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace accelerate::ops
