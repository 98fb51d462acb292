// The floating-point type that a prepared model computes in.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

#include "accelerate/export.h"
#include "accelerate/process_state.h"

namespace accelerate {

// A value: MixedPrecision::kBf16, or the reference's spelling "bf16".
class ACCELERATE_EXPORT MixedPrecision {
 public:
  enum Value {
    kNo,    // everything in the types of the tensors
    kFp16,  // half precision where it is safe; gradients need a GradScaler
    kBf16,  // bfloat16 where it is safe; no scaler
    kFp8,   // 8-bit matrix products on top of bfloat16
  };

  // Implicit, so that options read `.mixed_precision = MixedPrecision::kBf16` or `= "bf16"`.
  // NOLINTBEGIN(google-explicit-constructor)
  constexpr MixedPrecision(Value value = kNo) : value_(value) {}
  // "no", "fp16", "bf16" or "fp8", in upper or lower case. Otherwise throws UsageError, which
  // suggests the nearest name.
  MixedPrecision(std::string_view name);
  MixedPrecision(const char* name) : MixedPrecision(std::string_view(name)) {}
  MixedPrecision(const std::string& name) : MixedPrecision(std::string_view(name)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Value value() const { return value_; }
  // The reference's spelling.
  std::string_view name() const;
  // The type that autocast computes in: half or bfloat16, the latter also under fp8; nothing for
  // kNo.
  std::optional<c10::ScalarType> autocast_type() const;
  // Half precision loses small gradients: the loss must be scaled.
  constexpr bool needs_grad_scaler() const { return value_ == kFp16; }

  friend constexpr bool operator==(MixedPrecision, MixedPrecision) = default;

 private:
  Value value_;
};

// What an accelerator uses: `asked_for`, else ACCELERATE_MIXED_PRECISION, else kNo. Throws
// ConfigError, which names the variable and suggests the nearest name.
ACCELERATE_EXPORT MixedPrecision resolve_mixed_precision(
    const std::optional<MixedPrecision>& asked_for, const EnvironmentLookup& lookup);

}  // namespace accelerate
