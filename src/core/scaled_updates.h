// Updates of optimizers whose losses are scaled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/grad_scaler.h"
#include "device/host_copy.h"

namespace accelerate {

// Gradients as they are at one moment: a later look tells whether something was added to them.
class GradientMarks {
 public:
  void add(const std::vector<at::Tensor>& parameters);
  // Of which parameters that happened.
  std::vector<at::Tensor> changed() const;

 private:
  struct Mark {
    at::Tensor parameter;
    const void* gradient = nullptr;  // null: it had none
    int64_t version = 0;
  };
  std::vector<Mark> marks_;
};

// One scale for all optimizers of an accelerator. It changes between iterations only: when the next
// loss is scaled, so that optimizers that step one after the other meet the scale that their
// gradients have. One thread at a time.
//
// Of an optimizer whose groups hold pieces of parameters each rank sees a part of the gradients:
// what is decided by them is agreed with the other ranks, so the calls about such an optimizer are
// collective, on ranks with an empty part too.
class ScaledUpdates {
 public:
  ScaledUpdates(const GradScalerOptions& options, std::shared_ptr<Communicator> ranks)
      : scaler_(options), ranks_(std::move(ranks)) {}

  // The groups of this optimizer hold pieces of what `parameters` returns, until forget().
  void add_pieces(const torch::optim::Optimizer& optimizer,
                  std::function<std::vector<at::Tensor>()> parameters);
  bool trains_pieces(const torch::optim::Optimizer& optimizer) const {
    return find_pieces(optimizer) != nullptr;
  }
  // The optimizer is gone.
  void forget(const torch::optim::Optimizer& optimizer);

  at::Tensor scale(const at::Tensor& loss);
  // Does nothing where it is done already, and for an optimizer without gradients.
  void unscale(torch::optim::Optimizer& optimizer);
  // See OptimizerHost::run_update.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& update);
  // See OptimizerHost::run_update_on_device. The host is at most one update of
  // each optimizer ahead: before the next one it learns how the last one ended.
  bool step_on_device(torch::optim::Optimizer& optimizer,
                      const std::function<void(const at::Tensor& found_inf)>& update,
                      std::function<void(bool skipped)> ended);
  // Finds out how all updates ended. Waits for a device that has not told yet.
  void settle();
  // Calls `then` at once, or in settle() where it is not known how an update ended.
  void when_known(std::function<void()> then);
  // The gradients of the optimizer were thrown away: if they were unscaled, they get no step.
  void discard(const torch::optim::Optimizer& optimizer);
  // The same, if `parameters` are all that have a gradient among `own`, those of the optimizer.
  void discard_if_within(const torch::optim::Optimizer& optimizer,
                         const std::vector<at::Tensor>& own,
                         const std::vector<at::Tensor>& parameters);
  // Whether unscaled gradients wait for their step.
  bool holds_unscaled() const { return !unscaled_.empty(); }
  bool holds_unscaled(const torch::optim::Optimizer& optimizer) const {
    return unscaled_.contains(&optimizer);
  }
  // No optimizer waits for its step any more.
  void reset();
  // Forgets what was begun since the scale was last adapted: it was recorded and never made, or the
  // gradients and the scale were replaced by those of a checkpoint.
  void abandon();
  // Ends the iteration, unless unscaled gradients wait for their step.
  void finish_iteration() {
    if (unscaled_.empty()) end_iteration("scaler");
  }
  // With the scale that the next loss will have, unless unscaled gradients wait for their step.
  GradScaler& scaler();

 private:
  // An update that is on its way.
  struct Pending {
    const torch::optim::Optimizer* optimizer;
    device::HostCopy found_inf;
    std::function<void(bool skipped)> ended;
  };

  void end_iteration(const char* where);
  void require_first_step(const torch::optim::Optimizer& optimizer);
  // Of an optimizer that holds pieces.
  struct Pieces {
    const torch::optim::Optimizer* optimizer;
    std::function<std::vector<at::Tensor>()> parameters;
  };
  const Pieces* find_pieces(const torch::optim::Optimizer& optimizer) const;
  // What gets gradients by which this optimizer updates.
  std::vector<at::Tensor> trained_by(const torch::optim::Optimizer& optimizer) const;
  // Whether there is a gradient; of pieces, whether any rank has one.
  bool has_gradients_anywhere(const torch::optim::Optimizer& optimizer) const;
  bool is_pending(const torch::optim::Optimizer& optimizer) const;

  GradScaler scaler_;
  std::shared_ptr<Communicator> ranks_;
  std::vector<Pieces> pieces_;  // in the order of their preparation, in which ranks talk of them
  // Since the scale was last adapted.
  std::set<const torch::optim::Optimizer*> unscaled_;  // and not stepped
  std::set<const torch::optim::Optimizer*> stepped_;
  bool has_scaled_ = false;  // a loss
  std::vector<Pending> pending_;
  std::vector<std::function<void()>> deferred_;
};

// Whether one of `parameters` is among `own`.
bool has_any_of(const std::vector<at::Tensor>& own, at::TensorList parameters);

}  // namespace accelerate
