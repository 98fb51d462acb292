// Computing in lower precision where that is safe: a block of code, or the forward pass of a
// prepared model.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>

#include "accelerate/export.h"
#include "accelerate/mixed_precision.h"

namespace accelerate {

struct AutocastOptions {
  // False: inside the block everything is computed in the types of the tensors, whatever block
  // encloses it.
  bool enabled = true;
  // Keep the converted copies of parameters until the outermost block ends, so that a parameter
  // that is used twice is converted once. Unset: unchanged.
  std::optional<bool> cache_enabled{};
};

// While it lives, operations of this thread on `device_type` (CPU or CUDA) compute in `dtype` where
// libtorch considers that safe. Its end, also by an exception, restores the previous setting;
// the end of the outermost one drops the converted copies. Guards must end in reverse
// order, on the same thread. Costs nothing but a few thread-local stores.
class [[nodiscard]] ACCELERATE_EXPORT Autocast {
 public:
  // Changes nothing.
  Autocast() = default;
  // Throws UsageError unless `dtype` is kHalf or kBFloat16 and the device is a CPU or a CUDA one.
  Autocast(c10::DeviceType device_type, c10::ScalarType dtype, const AutocastOptions& options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  struct Before {
    c10::DeviceType device_type;
    bool enabled;
    c10::ScalarType dtype;
    bool cache_enabled;
  };
  std::optional<Before> before_;
};

// `tensor` in float32 if it is a half or bfloat16 one, else as it is. Differentiable.
ACCELERATE_EXPORT at::Tensor convert_to_fp32(const at::Tensor& tensor);

struct PrecisionOptions {
  // Convert the outputs of prepared models to float32, so that losses are computed in it.
  bool convert_outputs_to_fp32 = true;
  AutocastOptions autocast{};
};

// What a prepared model does before and after its forward pass:
//   auto guard = policy.autocast();  output = forward(...);  every tensor of it -> policy.output()
// A value, made once for each accelerator.
class ACCELERATE_EXPORT PrecisionPolicy {
 public:
  PrecisionPolicy() = default;
  // Throws UsageError if `device` cannot compute in this precision.
  PrecisionPolicy(MixedPrecision precision, c10::Device device,
                  const PrecisionOptions& options = {});

  MixedPrecision mixed_precision() const { return precision_; }
  bool needs_grad_scaler() const { return precision_.needs_grad_scaler(); }

  // The guard of one forward pass, or of a block that sets `options` for itself. Changes nothing
  // without mixed precision.
  Autocast autocast() const { return autocast(options_.autocast); }
  Autocast autocast(const AutocastOptions& options) const;

  // A tensor that a prepared model returns, as its caller gets it.
  at::Tensor output(const at::Tensor& tensor) const {
    return converts_outputs() ? convert_to_fp32(tensor) : tensor;
  }
  // False if output() returns everything unchanged.
  bool converts_outputs() const {
    return precision_ != MixedPrecision::kNo && options_.convert_outputs_to_fp32;
  }

 private:
  MixedPrecision precision_;
  c10::Device device_{c10::kCPU};
  PrecisionOptions options_;
};

}  // namespace accelerate
