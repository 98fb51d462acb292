// What an update leaves behind in an optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// How far an optimizer has come with one of its parameters, as the host sees it without waiting for
// a device.
class StepTrace {
 public:
  // Nothing where an update leaves no such trace: SGD without momentum, types of the user's own.
  static std::optional<StepTrace> of(const torch::optim::Optimizer& optimizer,
                                     const at::Tensor& parameter);

  // Whether there was an update since `before`. A count that went down is no update: one that the
  // device has skipped is taken back.
  bool is_past(const StepTrace& before) const {
    return count_ > before.count_ || momentum_ != before.momentum_ || version_ > before.version_;
  }

 private:
  int64_t count_ = 0;               // of updates, where the optimizer counts them
  const void* momentum_ = nullptr;  // where it keeps a momentum instead
  int64_t version_ = 0;             // of that
};

}  // namespace accelerate
