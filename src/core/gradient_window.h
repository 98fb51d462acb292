// The window of gradient accumulation that an accelerator works on.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/accumulation.h"
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
                 Gradients gradients);

  // Throws UsageError if one has begun and not ended.
  void begin_micro_batch(bool last_of_loader);
  void end_micro_batch() { in_micro_batch_ = false; }

  bool sync_gradients() const { return counter_.sync_gradients(); }
  int64_t steps() const { return counter_.steps(); }

  // What to run backward from instead of `loss`. Collective where a window of weighted losses ends,
  // and for the first weighted loss of all. Throws UsageError for a loss outside of micro-batches
  // where windows have several, and for weights that do not go together.
  at::Tensor counted(const at::Tensor& loss, std::optional<double> weight);

  // Throws UsageError if the window ends in a micro-batch without a loss: what its other ones left
  // in the gradients was not brought together.
  void require_complete() const;
  // Throws UsageError if gradients of earlier micro-batches would be lost by zero_grad() now.
  void require_droppable() const;

  // Begins anew, as if no micro-batch had been.
  void reset();

  // What a checkpoint keeps.
  detail::AccumulationWindow& counter() { return counter_; }
  WindowWeights& weights() { return weights_; }

 private:
  void scale_gradients(double factor) const;

  detail::AccumulationWindow counter_;
  WindowWeights weights_;
  std::shared_ptr<Communicator> ranks_;
  Gradients gradients_;
  bool in_micro_batch_ = false;
  bool has_loss_ = false;  // the present micro-batch
};

}  // namespace accelerate
