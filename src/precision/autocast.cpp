#include "accelerate/autocast.h"

#include <ATen/autocast_mode.h>

#include <string>

#include "accelerate/errors.h"
#include "device/device_backend.h"

namespace accelerate {
namespace {

void require_supported(c10::DeviceType device_type, c10::ScalarType dtype) {
  const device::DeviceBackend& backend = device::device_backend(device_type);
  const auto supports = [&](c10::ScalarType type) { return backend.supports_autocast(type); };
  if (supports(dtype)) return;
  if (!supports(c10::kHalf) && !supports(c10::kBFloat16)) {
    throw UsageError(
        {.what = "autocast is not available on " + c10::DeviceTypeName(device_type, true),
         .where = "autocast",
         .hint = "use it on cpu or cuda"});
  }
  const bool takes_both = supports(c10::kHalf) && supports(c10::kBFloat16);
  throw UsageError({.what = std::string("autocast cannot compute in ") + c10::toString(dtype) +
                            (takes_both ? "" : " on " + c10::DeviceTypeName(device_type, true)),
                    .where = "autocast",
                    .hint = takes_both ? "use kHalf or kBFloat16" : "use kBFloat16 (bf16)"});
}

}  // namespace

Autocast::Autocast(c10::DeviceType device_type, c10::ScalarType dtype,
                   const AutocastOptions& options) {
  require_supported(device_type, dtype);
  before_ = {.device_type = device_type,
             .enabled = at::autocast::is_autocast_enabled(device_type),
             .dtype = at::autocast::get_autocast_dtype(device_type),
             .cache_enabled = at::autocast::is_autocast_cache_enabled()};
  at::autocast::set_autocast_enabled(device_type, options.enabled);
  at::autocast::set_autocast_dtype(device_type, dtype);
  at::autocast::increment_nesting();
  if (options.cache_enabled) at::autocast::set_autocast_cache_enabled(*options.cache_enabled);
}

Autocast::~Autocast() {
  if (!before_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(before_->device_type, before_->enabled);
  at::autocast::set_autocast_dtype(before_->device_type, before_->dtype);
  at::autocast::set_autocast_cache_enabled(before_->cache_enabled);
}

at::Tensor convert_to_fp32(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const c10::ScalarType dtype = tensor.scalar_type();
  if (dtype != c10::ScalarType::Half && dtype != c10::ScalarType::BFloat16) return tensor;
  return tensor.to(c10::ScalarType::Float);
}

PrecisionPolicy::PrecisionPolicy(MixedPrecision precision, c10::Device device,
                                 const PrecisionOptions& options)
    : precision_(precision), device_(device), options_(options) {
  // Of XLA devices here: others show it when they cast first.
  const auto dtype = precision.autocast_type();
  if (dtype && device.type() == c10::kXLA) require_supported(device.type(), *dtype);
  if (precision != MixedPrecision::kFp8) return;
  if (!device::device_backend(device.type()).multiplies_float8(device)) {
    throw UsageError({.what = "fp8 needs a GPU of compute capability 8.9 or more; this process "
                              "computes on " +
                              device.str(),
                      .where = "mixed_precision",
                      .hint = "'bf16', which every device can"});
  }
  throw UsageError({.what = "8-bit matrix products are not part of this version",
                    .where = "mixed_precision",
                    .hint = "'bf16'"});
}

Autocast PrecisionPolicy::autocast(const AutocastOptions& options) const {
  const auto dtype = precision_.autocast_type();
  if (!dtype) return Autocast();
  return Autocast(device_.type(), *dtype, options);
}

}  // namespace accelerate
