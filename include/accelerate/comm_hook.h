// How gradients are compressed when the ranks exchange them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "accelerate/export.h"

namespace accelerate {

// A value: CommHook::kFp16, or the reference's spelling "fp16".
class ACCELERATE_EXPORT CommHook {
 public:
  enum Value {
    kNo,               // "no": gradients are sent unchanged
    kFp16,             // "fp16": as half, half the bytes of float32
    kBf16,             // "bf16": as bfloat16
    kPowerSgd,         // "power_sgd": each matrix as a product of two thin ones
    kBatchedPowerSgd,  // "batched_power_sgd": the whole bucket as one square matrix
  };
  // Implicit, so that options read `.hook = CommHook::kFp16` or `= "fp16"`.
  // NOLINTBEGIN(google-explicit-constructor)
  constexpr CommHook(Value value = kNo) : value_(value) {}
  // Throws UsageError that lists the known names.
  CommHook(std::string_view name);
  CommHook(const char* name) : CommHook(std::string_view(name)) {}
  CommHook(const std::string& name) : CommHook(std::string_view(name)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Value value() const { return value_; }
  std::string_view name() const;
  friend constexpr bool operator==(CommHook, CommHook) = default;

 private:
  Value value_;
};

// PowerSGD (Vogels and others, 2019): a gradient of n x m elements is sent as n x r and m x r ones.
struct PowerSgdOptions {
  // r: the fewer, the less is sent and the coarser the gradient.
  int64_t matrix_approximation_rank = 1;
  // Backward passes before it begins, in which gradients are sent uncompressed.
  int64_t start_power_sgd_iter = 1000;
  // Compress a matrix only if that divides its size by more than this.
  double min_compression_rate = 2;
  // Add what an approximation left out to the next gradient. Costs the memory of all gradients.
  bool use_error_feedback = true;
  // Start from the last approximation rather than from random directions.
  bool warm_start = true;
  // Added to the length of a direction before it is divided by it, for rank 1 and 2.
  double orthogonalization_epsilon = 0;
  // Of the random directions; the same on all ranks.
  uint64_t random_seed = 0;

  friend bool operator==(const PowerSgdOptions&, const PowerSgdOptions&) = default;
};

struct CommHookOptions {
  CommHook hook{};
  // Lets PowerSGD compute and send in half or bfloat16: kNo, kFp16 or kBf16.
  CommHook wrapper{};
  PowerSgdOptions power_sgd{};

  friend bool operator==(const CommHookOptions&, const CommHookOptions&) = default;
};

// Throws UsageError if the options contradict each other.
ACCELERATE_EXPORT void require_usable(const CommHookOptions& options);

}  // namespace accelerate
