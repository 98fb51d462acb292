// Scalars on the device that the host writes before each replay of a recorded update.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {

// They are made in the steps that warm up, not while a graph is recorded: memory that is taken then
// is also that of earlier tensors of the graph, which would overwrite what the host put there.
class RecordedScalars {
 public:
  // To be called by updates that are not recorded: lays `count` scalars by where recordings may
  // follow.
  void lay_by(c10::Device device, int count) {
    if (!device::KeptGradients::active()) return;
    for (int i = 0; i < count && spares_.size() < kMostSpares; ++i) {
      spares_.push_back(at::empty({}, at::TensorOptions(at::kFloat).device(device)));
    }
  }

  // One that belongs to the caller. Throws UsageError if none was laid by.
  at::Tensor take() {
    if (spares_.empty()) refuse_first_step();
    at::Tensor taken = spares_.back();
    spares_.pop_back();
    return taken;
  }

  [[noreturn]] static void refuse_first_step() {
    throw UsageError({.what = "the optimizer made no step before the one that is recorded",
                      .where = "step",
                      .hint = "let all parameters have gradients in every step"});
  }

 private:
  // Two for each of many groups of parameters, which are laid by in one step and taken in one.
  static constexpr size_t kMostSpares = 1024;
  std::vector<at::Tensor> spares_;
};

}  // namespace accelerate
