// An optimizer that belongs to an accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/strategy.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace accelerate {

// The training that a prepared optimizer is part of, as far as its steps depend on it. The
// accelerator has its own; this class itself is a training on one process, without accumulation and
// scaling. Called by the thread of the training. Owned by the optimizers that share it.
class ACCELERATE_EXPORT OptimizerHost {
 public:
  OptimizerHost() = default;
  virtual ~OptimizerHost() = default;
  OptimizerHost(const OptimizerHost&) = delete;
  OptimizerHost& operator=(const OptimizerHost&) = delete;

  // Which rank errors are thrown on.
  virtual int rank() const { return 0; }
  virtual int world_size() const { return 1; }

  // Called first by every step(); throws if training cannot go on.
  virtual void before_step() {}
  // False while gradients only accumulate: steps are then left out.
  virtual bool sync_gradients() const { return true; }
  // Whether gradients accumulate over several passes, which a closure cannot know.
  virtual bool accumulates() const { return false; }
  // Throws if the gradients of an optimizer's parameters are not fit for an update.
  virtual void require_complete(const std::vector<at::Tensor>& /*parameters*/) const {}
  // The last that happens to gradients of whole parameters before an update by them, and after
  // before_update(). Collective.
  virtual void finish_gradients(torch::optim::Optimizer& /*optimizer*/,
                                const std::vector<at::Tensor>& /*parameters*/) {}

  // Whether losses are scaled: updates then go through the two calls below, and closures, which
  // compute their loss unscaled, are refused.
  virtual bool scales_losses() const { return false; }
  // An update by complete gradients comes next, before the strategy looks at them. Collective.
  virtual void before_update(torch::optim::Optimizer& /*optimizer*/) {}
  // Calls `update`, or skips it if the gradients are unusable; returns whether it was called.
  // GradScaler::step does this.
  virtual bool run_update(torch::optim::Optimizer& /*optimizer*/,
                          const std::function<void()>& update) {
    update();
    return true;
  }
  // The same for updates that look on the device themselves: calls `update` with a tensor that is
  // not 0 where nothing may change, and `ended` when the host knows about it: when it is asked, or
  // at the next update. False: it did nothing, and run_update() is to be called.
  virtual bool run_update_on_device(
      torch::optim::Optimizer& /*optimizer*/,
      const std::function<void(const at::Tensor& found_inf)>& /*update*/,
      std::function<void(bool skipped)> /*ended*/) {
    return false;
  }
  // Finds out how all updates ended; may wait for the device.
  virtual void settle() {}

  // zero_grad() is about to drop the gradients of this optimizer's parameters. False: it keeps
  // them.
  virtual bool begin_zero_grad(const torch::optim::Optimizer& /*optimizer*/,
                               const std::vector<at::Tensor>& /*parameters*/) {
    return sync_gradients();
  }
  // step() has used these gradients, or skipped an update because of them.
  virtual void stepped(const torch::optim::Optimizer& /*optimizer*/,
                       const std::vector<at::Tensor>& /*parameters*/) {}
};

namespace detail {
// The optimizer that was given to prepare(), if `optimizer` is what a PreparedOptimizer converts
// to; else `optimizer` itself.
ACCELERATE_EXPORT torch::optim::Optimizer& own_optimizer(torch::optim::Optimizer& optimizer);
}  // namespace detail

// What Accelerator::prepare makes of a torch::optim optimizer: the same object behind the calls of
// the training loop. Its parameters, options and state stay in that object; SGD, Adam, AdamW and
// Adagrad are updated by fused kernels, RMSprop by list operators, others by their own step(). A
// handle: copies share the optimizer, and a moved-from one stays valid. One thread at a time.
class ACCELERATE_EXPORT PreparedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  // What Accelerator::prepare calls. `strategy` is one for this optimizer, `host` may be that of
  // several; null means an optimizer that trains by itself.
  explicit PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                             std::unique_ptr<OptimizerStrategy> strategy = nullptr,
                             std::shared_ptr<OptimizerHost> host = nullptr);
  PreparedOptimizer(const PreparedOptimizer&) = default;
  PreparedOptimizer& operator=(const PreparedOptimizer&) = default;

  // Updates the parameters that have a gradient, as the optimizer's own step() would. Does nothing
  // while gradients only accumulate. With a closure the loss is computed first and returned; LBFGS
  // calls it as often as it needs. Throws UsageError if gradients came from loss.backward() where
  // only Accelerator::backward averages them over the ranks, or for a closure where the loss
  // is scaled.
  at::Tensor step(LossClosure closure = nullptr);
  // Drops the gradients, unless they come from earlier micro-batches of an accumulation window that
  // is still open. So it may come before backward() as well as after step(). Between the last
  // backward pass of a window and step() it discards the update.
  void zero_grad(bool set_to_none = true);
  // Whether the latest step() that was due left the parameters as they were. Waits for a GPU under
  // fp16.
  bool step_was_skipped() const;
  // Updates made so far, including those before a checkpoint was loaded.
  int64_t step_count() const;
  void set_step_count(int64_t steps);

  // For code that takes a torch::optim::Optimizer&, get_scheduler() and torch::save() and
  // torch::load() included. Its step() is that of this handle. It has groups of its own, with
  // options of the type that the user's optimizer has: what is changed in one is copied to the
  // other when the optimizer or a prepared scheduler steps, at this conversion and when state is
  // saved. A change of both to different values, and add_param_group() on it, is a UsageError at
  // the next step. It keeps no state(). zero_grad() on it inside a window of accumulation loses
  // nothing, see zero_grad(); there with set_to_none = false it is a UsageError at the next
  // backward pass. Valid as long as a handle lives. Throws UsageError if the options are of a type
  // of the user's own.
  // NOLINTBEGIN(google-explicit-constructor): functions that take one need no change
  operator torch::optim::Optimizer&() const&;
  operator torch::optim::Optimizer&() const&& = delete;
  // NOLINTEND(google-explicit-constructor)
  // Synchronises the groups of the conversion above and of the user's optimizer now.
  void agree_groups() const;

  std::vector<torch::optim::OptimizerParamGroup>& param_groups();
  // The parameters that the user gave to the optimizer, of all groups in their order. The groups
  // hold the same, unless the strategy trains something else in their place.
  std::vector<at::Tensor> parameters() const;
  OptimizerStrategy& strategy() const;
  // The user's own optimizer, for anything not offered here.
  torch::optim::Optimizer& optimizer() const;
  // How many copies of this handle there are.
  long handles() const { return impl_.use_count(); }

 private:
  struct ACCELERATE_HIDDEN Impl;
  explicit PreparedOptimizer(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

// "torch::optim::AdamW, lr 0.001, 4 parameters"; of several groups each rate in its order.
ACCELERATE_EXPORT std::ostream& operator<<(std::ostream& stream,
                                           const PreparedOptimizer& optimizer);

// For torch::save() and torch::load(): those of the user's optimizer.
ACCELERATE_EXPORT torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive, const PreparedOptimizer& optimizer);
ACCELERATE_EXPORT torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, const PreparedOptimizer& optimizer);

}  // namespace accelerate
