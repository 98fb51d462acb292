// An optimizer that belongs to an accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accelerate/detail/prepared_models.h"
#include "accelerate/export.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace accelerate {

// Callbacks that decide about the steps of a prepared optimizer.
struct OptimizerSurroundings {
  // False while gradients only accumulate: steps are then left out. Asked at every call; empty
  // means always true.
  std::function<bool()> sync_gradients{};
  // Throws if the gradients are not fit for an update. May be empty.
  std::function<void(const torch::optim::Optimizer& optimizer)> require_complete{};
  // Whether gradients accumulate over several passes, which a closure cannot know. May be empty.
  std::function<bool()> accumulates{};
  // Calls `update`, or skips it if the gradients are unusable; returns whether it was
  // called. Empty means always. GradScaler::step has this form.
  std::function<bool(torch::optim::Optimizer& optimizer, const std::function<void()>& update)>
      run_update{};
  // The same for updates that look on the device themselves: calls `update` with a tensor that is
  // not 0 where nothing may change, and `ended` when the host knows about it: when it is asked, or
  // at the next update. False: it did nothing, and run_update is to be called. May be empty.
  std::function<bool(torch::optim::Optimizer& optimizer,
                     const std::function<void(const at::Tensor& found_inf)>& update,
                     std::function<void(bool skipped)> ended)>
      run_update_on_device{};
  // Finds out how all updates ended; may wait for the device. May be empty.
  std::function<void()> settle{};
  // zero_grad() is about to drop the gradients of this optimizer. False: it keeps them. Empty: it
  // does so where sync_gradients is false.
  std::function<bool(const torch::optim::Optimizer& optimizer)> begin_zero_grad{};
  // step() has used the gradients of this optimizer, or skipped an update because of them. May be
  // empty.
  std::function<void(const torch::optim::Optimizer& optimizer)> stepped{};
  // Called first by every step(); throws if training cannot go on. May be empty.
  std::function<void()> before_step{};
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

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                    std::shared_ptr<detail::PreparedModels> models,
                    OptimizerSurroundings surroundings = {});
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
  // The user's own optimizer, for anything not offered here.
  torch::optim::Optimizer& optimizer() const;
  // How many copies of this handle there are.
  long handles() const { return impl_.use_count(); }

 private:
  struct ACCELERATE_HIDDEN Impl;
  explicit PreparedOptimizer(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

// For torch::save() and torch::load(): those of the user's optimizer.
ACCELERATE_EXPORT torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive, const PreparedOptimizer& optimizer);
ACCELERATE_EXPORT torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, const PreparedOptimizer& optimizer);

}  // namespace accelerate
