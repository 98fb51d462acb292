// Detects backward passes that bypass Accelerator::backward(), and steps by their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "compat/reducer.h"
#include "strategy/ddp/trainable_parameters.h"

namespace accelerate {

// The passes of one model whose gradients are those of this rank alone. The reducer sees them, and
// keeps whether there are any; this class knows whether they were meant and what a step has made of
// them. One thread at a time, but for note_gradient().
class LocalPasses {
 public:
  LocalPasses(const TrainableParameters& parameters,
              std::shared_ptr<compat::GradientReducer> reducer)
      : parameters_(parameters), reducer_(std::move(reducer)) {}

  // Whether gradients are there that were not averaged.
  bool any() const { return reducer_->holds_unreduced_gradients(); }
  // The same, unless they were meant to stay on this rank.
  bool any_by_mistake() const { return any() && !are_meant_; }

  // A parameter has got a gradient in such a pass: notes what the parameter is, so that a step by
  // that gradient is seen even if the gradient is gone by then. libtorch's optimizers leave no
  // other trace on a parameter. Any thread.
  void note_gradient(size_t index);
  // The first parameter that has changed since. Waits for the device where there is one to look at.
  std::optional<size_t> changed_parameter() const;

  // Their gradients were averaged or dropped.
  void forget();
  // Those so far were meant to stay on this rank.
  void accept();
  // The gradients of `dropped`, which may belong to other models, are about to be dropped. Passes
  // are forgotten once none of their gradients is left. The error to throw if a step has used them.
  std::optional<ErrorInfo> drop_gradients(const std::vector<at::Tensor>& dropped);

  // What to throw as UsageError: because of such a pass, or because parameter `index` was changed
  // after it. `where` is what the user called.
  static ErrorInfo pass_error(const char* where);
  ErrorInfo step_error(size_t index, const char* where) const;

 private:
  const TrainableParameters& parameters_;  // of the model, which owns this
  std::shared_ptr<compat::GradientReducer> reducer_;
  bool are_meant_ = false;
  mutable std::mutex noted_mutex_;
  std::map<size_t, at::Tensor> noted_;  // by parameter: its bits when it got such a gradient
};

}  // namespace accelerate
