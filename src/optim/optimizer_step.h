// How one update of an optimizer is done: chosen once, when the optimizer is prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// Does what optimizer.step(closure) does, on the optimizer's own parameters and state. One thread
// at a time; the optimizer outlives it.
class OptimizerStep {
 public:
  using LossClosure = std::function<at::Tensor()>;

  virtual ~OptimizerStep() = default;
  virtual at::Tensor step(LossClosure closure) = 0;
  // Whether step_unless() can be called.
  virtual bool can_look_on_device() const { return false; }
  // The same as step(), but changes nothing where `found_inf`, a float32 scalar beside the
  // parameters, is not 0. Waits for nothing. What counts updates on the host counts this one;
  // ended() must follow before the next one.
  virtual void step_unless(const at::Tensor& found_inf);
  // It is known how the latest step_unless() ended: takes it back from the counts if it was
  // skipped.
  virtual void ended(bool /*skipped*/) {}
  // Of a word, for logs and tests: "flat", "fused", "foreach" or "own".
  virtual const char* name() const = 0;
};

// The fastest way for this type of optimizer. Types that are not known, also those derived from
// torch's own, keep their own step().
std::unique_ptr<OptimizerStep> make_optimizer_step(torch::optim::Optimizer& optimizer);

}  // namespace accelerate
