// Gradients that no step under fp16 may use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compat/gradient_hooks.h"

namespace accelerate {

// A step divides gradients by the scale of the loss. Those of a pass that bypassed
// Accelerator::backward() were not multiplied by it, and those of a scaled loss that was added to
// unscaled gradients are of two scales. They stay unfit until they are dropped. One thread at a
// time, but for passes.
class UnfitGradients {
 public:
  // Detects passes that reach these parameters, instead of those given before.
  void watch(std::vector<at::Tensor> parameters);
  // Before a forward pass. Hooks keep autograd's nodes of the parameters alive, which stay on the
  // stream on which they were made, and of the shape and type of then: where these are others now,
  // new ones are made. Steps that are recorded as graphs need nodes of their own, which `held`
  // false lets them make; passes that bypass the accelerator are then not seen.
  void hold_hooks(bool held);

  // While one lives, passes are those of Accelerator::backward(). Null: nothing is watched.
  class Pass {
   public:
    explicit Pass(UnfitGradients* gradients) : gradients_(gradients) { count(1); }
    ~Pass() { count(-1); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    void count(int change);
    UnfitGradients* gradients_;
  };

  // A scaled loss was added to unscaled gradients of these parameters.
  void add_mixed(const std::vector<at::Tensor>& parameters);
  // The gradients of these parameters were dropped, or all of them were replaced.
  void forget(const std::vector<at::Tensor>& parameters);
  void forget_all();
  // Forgets gradients that were dropped or set to zero without the library being asked. Waits for
  // the device if there is one to look at.
  void forget_dropped();
  // Throws UsageError if one of `parameters` has such a gradient. As forget_dropped() otherwise.
  void require_none(const std::vector<at::Tensor>& parameters, const char* where);

 private:
  enum class Cause { kBypassed, kMixed };
  struct Unfit {
    at::Tensor parameter;
    Cause cause;
  };

  // What autograd's node of a parameter was made for; one that needs no gradient has none.
  struct Kind {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    c10::Device device;
    bool requires_grad;
  };

  void make_hooks();
  bool hooks_fit() const;
  void came(size_t index);

  std::vector<at::Tensor> parameters_;
  bool holds_hooks_ = true;
  std::optional<c10::Stream> made_on_;
  std::vector<Kind> made_for_;
  std::mutex mutex_;  // of what follows
  int passes_ = 0;    // of the accelerator, under way
  std::unordered_map<const void*, Unfit> unfit_;
  std::unique_ptr<compat::GradientHooks> hooks_;  // last: they call the rest
};

}  // namespace accelerate
