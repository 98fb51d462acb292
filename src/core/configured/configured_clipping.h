// Clipping that a configuration asks for: before each update, unless the program clips itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "accelerate/clip.h"
#include "accelerate/strategy.h"

namespace accelerate {

class ConfiguredClipping {
 public:
  // The gradients are clipped to `max_norm`, as `place` says; `is_auto`: the program may say
  // another norm.
  ConfiguredClipping(double max_norm, bool is_auto, std::string place,
                     std::shared_ptr<Strategy> strategy);

  // The program is about to clip by itself. Throws ConfigError where that contradicts the
  // configuration.
  void check(double max_norm, const ClipNormOptions& options) const;
  // It has clipped the gradients of these for the next update.
  void note(at::TensorList parameters);
  // These gradients were dropped.
  void forget(const std::vector<at::Tensor>& parameters);
  // Clips the gradients of an update, unless the program has done so. Collective.
  void clip(const std::vector<at::Tensor>& parameters);

 private:
  double max_norm_;
  bool is_auto_;
  std::string place_;
  std::shared_ptr<Strategy> strategy_;
  std::unordered_set<const void*> clipped_;
};

}  // namespace accelerate
