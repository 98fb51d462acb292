#include "core/gradient_window.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {

GradientWindow::GradientWindow(int64_t steps, bool sync_with_dataloader,
                               std::shared_ptr<Communicator> ranks, Gradients gradients,
                               WindowGradients::Owners owners)
    : counter_(steps, sync_with_dataloader),
      ranks_(std::move(ranks)),
      gradients_(std::move(gradients)),
      held_(std::move(owners)) {}

void GradientWindow::set_steps(int64_t steps) {
  counter_ = detail::AccumulationWindow(steps, counter_.sync_with_dataloader());
}

// Two windows that take turns would be counted as one: the models of one would be updated too
// often, those of the other hardly ever.
void GradientWindow::require_same_window(const std::vector<const void*>& models) const {
  if (models.empty() || models_.empty()) return;
  if (std::ranges::find_first_of(models, models_) != models.end()) return;
  throw UsageError({.what = "a micro-batch of one model in the open window of another: all models "
                            "share one counter of micro-batches",
                    .where = "accumulate",
                    .hint = "where one loop trains several models, name all of them in one "
                            "accumulate(generator, critic) around both losses; free_memory() ends "
                            "a window that a loop has left open"});
}

// A later micro-batch may name any model that an earlier one has named.
void GradientWindow::extend_window(const std::vector<const void*>& models) {
  if (models.empty()) {  // that is all of them
    models_.clear();
  } else if (!models_.empty()) {
    models_.insert(models_.end(), models.begin(), models.end());
  }
}

void GradientWindow::begin_micro_batch(bool last_of_loader,
                                       const std::vector<const void*>& models) {
  if (in_micro_batch_) {
    throw UsageError({.what = "a micro-batch inside another",
                      .where = "accumulate",
                      .hint = "name all models in one accumulate(), and let its result end before "
                              "the next one"});
  }
  if (counter_.sync_gradients()) {
    weights_.begin_window();
    held_.begin_window();
    models_ = models;
  } else {
    require_same_window(models);
    extend_window(models);
    held_.restore();
  }
  in_micro_batch_ = true;
  weights_.begin_micro_batch();
  counter_.begin_micro_batch(last_of_loader);
  // A window that turns out to be short was divided by too much so far; weighted losses are divided
  // when it ends.
  if (!weights_.weighted()) scale_gradients(counter_.correction());
  held_.refresh();
}

at::Tensor GradientWindow::counted(const at::Tensor& loss, std::optional<double> weight) {
  if (!in_micro_batch_) {
    if (counter_.steps() > 1) {
      throw UsageError(
          {.what = "a loss outside of accumulate(), although gradients accumulate over " +
                   std::to_string(counter_.steps()) + " micro-batches",
           .where = "backward",
           .hint = "call backward() while the result of accumulate(model) lives, or "
                   "set gradient_accumulation.steps to 1"});
    }
    weights_.begin_window();  // each loss is a window of its own
  }
  const bool last = counter_.sync_gradients();
  weights_.add(weight, last);
  if (!weight)
    return counter_.divisor() > 1 ? loss / static_cast<double>(counter_.divisor()) : loss;
  if (device::ReplayActions::current() != nullptr) {
    throw UsageError({.what = "the weight of a loss is a number of the host, which a CUDA graph "
                              "would repeat forever",
                      .where = "backward",
                      .hint = "multiply the loss by a tensor instead"});
  }
  const double unit = weights_.unit(*ranks_);
  double factor = *weight / unit;
  if (last) {
    const double correction = unit / weights_.mean_over(*ranks_);
    scale_gradients(correction);
    factor *= correction;
  }
  return loss * factor;
}

void GradientWindow::restore_gradients() {
  if (steps() > 1) held_.restore();
}

void GradientWindow::before_pass() {
  if (steps() > 1) held_.before_pass();
}

void GradientWindow::after_pass() {
  if (steps() > 1) held_.after_pass(sync_gradients());
}

void GradientWindow::require_complete(const std::vector<at::Tensor>& parameters) const {
  if (!sync_gradients() || !held_.holds(parameters)) return;
  throw UsageError(
      {.what = "the micro-batch that ends this window had no backward() for these "
               "parameters: the gradients of the earlier ones were not averaged over the ranks",
       .where = "step",
       .hint = "leave batches out before accumulate(), or run backward() from a loss "
               "times 0"});
}

void GradientWindow::drop(const std::vector<at::Tensor>& parameters) {
  held_.dropped(parameters);
  if (in_micro_batch_ && !sync_gradients()) drops_at_beginning_ = true;
}

void GradientWindow::used(const std::vector<at::Tensor>& parameters) { held_.used(parameters); }

void GradientWindow::adopt_loaded() {
  held_.begin_window();
  models_.clear();
  if (!sync_gradients()) held_.adopt_present();
}

void GradientWindow::reset() {
  counter_ = detail::AccumulationWindow(counter_.steps(), counter_.sync_with_dataloader());
  weights_ = {};
  models_.clear();
  held_.begin_window();
}

void GradientWindow::scale_gradients(double factor) const {
  if (factor == 1) return;
  const std::vector<at::Tensor> gradients = gradients_();
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, factor);
}

}  // namespace accelerate
