// The window of gradient accumulation that an accelerator works on.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/accumulation.h"
#include "core/window_gradients.h"
#include "core/window_weights.h"

namespace accelerate {

class Communicator;

// Counts micro-batches, decides how much each loss counts, and corrects the gradients by what only
// the end of a window can tell: how long it was, and the sum of its weights. All ranks make the
// same calls. One thread at a time.
class GradientWindow {
 public:
  // All gradients that losses may have been added to, each of them once.
  using Gradients = std::function<std::vector<at::Tensor>()>;

  // Throws UsageError for steps below 1.
  GradientWindow(int64_t steps, bool sync_with_dataloader, std::shared_ptr<Communicator> ranks,
                 Gradients gradients, WindowGradients::Owners owners);

  // `models` are those that were named, by identity; none: all. Throws UsageError if a micro-batch
  // has begun and not ended, if the window is open and none of `models` was named when it began,
  // and what WindowGradients::restore() throws.
  void begin_micro_batch(bool last_of_loader, const std::vector<const void*>& models = {});
  void end_micro_batch() { in_micro_batch_ = false; }

  bool sync_gradients() const { return counter_.sync_gradients(); }
  int64_t steps() const { return counter_.steps(); }
  // Before the first micro-batch. Throws UsageError for steps below 1.
  void set_steps(int64_t steps);

  // What to run backward from instead of `loss`. Collective where a window of weighted losses ends,
  // and for the first weighted loss of all. Throws UsageError for a loss outside of micro-batches
  // where windows have several, and for weights that do not go together.
  at::Tensor counted(const at::Tensor& loss, std::optional<double> weight);

  // Around each backward pass: counted() comes between restore_gradients() and before_pass().
  void restore_gradients();
  void before_pass();
  void after_pass();

  // Throws UsageError if no loss of the micro-batch that ends the window has reached these
  // parameters, though those of its other ones have: what they left was not brought together.
  void require_complete(const std::vector<at::Tensor>& parameters) const;
  // Whether zero_grad() must leave the gradients of these parameters alone: they are of earlier
  // micro-batches of the window and wait for their step.
  bool keeps(const std::vector<at::Tensor>& parameters) const { return held_.holds(parameters); }
  // zero_grad() throws gradients away that the window does not keep.
  void drop(const std::vector<at::Tensor>& parameters);
  // A step has used the gradients of these parameters.
  void used(const std::vector<at::Tensor>& parameters);
  // Whether zero_grad() was seen to throw gradients away in a micro-batch that begins a window and
  // does not end it: such a micro-batch is of another kind than later ones.
  bool drops_at_beginning() const { return drops_at_beginning_; }

  // The counter and the gradients were replaced by those of a checkpoint.
  void adopt_loaded();
  // Begins anew, as if no micro-batch had been.
  void reset();

  // What a checkpoint keeps.
  detail::AccumulationWindow& counter() { return counter_; }
  WindowWeights& weights() { return weights_; }
  // What a recording that is abandoned takes back.
  WindowGradients& held_gradients() { return held_; }

 private:
  void require_same_window(const std::vector<const void*>& models) const;
  void extend_window(const std::vector<const void*>& models);
  void scale_gradients(double factor) const;

  detail::AccumulationWindow counter_;
  WindowWeights weights_;
  std::shared_ptr<Communicator> ranks_;
  Gradients gradients_;
  WindowGradients held_;
  std::vector<const void*> models_;  // named by the first micro-batch of the window; none: all
  bool in_micro_batch_ = false;
  bool drops_at_beginning_ = false;
};

}  // namespace accelerate
