#include "core/optimizer_host.h"

#include "core/process/step_aggregator.h"
#include "device/device_backend.h"
#include "device/replay_actions.h"

namespace accelerate {

void TrainingOptimizerHost::before_step() {
  checks_->before_gradient_call("step");
  steps_->events->emit(Event(EventKind::kSpanBegin, kOptimizerSpan));
}

// What the strategy makes of gradients must not be scaled any more.
void TrainingOptimizerHost::before_update(torch::optim::Optimizer& optimizer) {
  if (updates_->trains_pieces(optimizer)) updates_->unscale(optimizer);
}

void TrainingOptimizerHost::finish_gradients(torch::optim::Optimizer& optimizer,
                                             const std::vector<at::Tensor>& parameters) {
  if (!clipping_) return;
  if (updates_) updates_->unscale(optimizer);
  clipping_->clip(parameters);
}

bool TrainingOptimizerHost::run_update(torch::optim::Optimizer& optimizer,
                                       const std::function<void()>& update) {
  const bool is_made = updates_->step(optimizer, update);
  if (is_made) steps_->count();
  return is_made;
}

bool TrainingOptimizerHost::run_update_on_device(
    torch::optim::Optimizer& optimizer,
    const std::function<void(const at::Tensor& found_inf)>& update,
    std::function<void(bool skipped)> ended) {
  return updates_->step_on_device(optimizer, update,
                                  [steps = steps_, ended = std::move(ended)](bool skipped) {
                                    if (!skipped) steps->count();
                                    ended(skipped);
                                  });
}

void TrainingOptimizerHost::settle() {
  if (updates_) updates_->settle();
}

bool TrainingOptimizerHost::begin_zero_grad(const torch::optim::Optimizer& optimizer,
                                            const std::vector<at::Tensor>& parameters) {
  if (window_->keeps(parameters)) {
    checks_->before_call("zero_grad");
    return false;
  }
  checks_->before_gradient_call("zero_grad");
  window_->drop(parameters);
  if (clipping_) clipping_->forget(parameters);
  checks_->own_steps().forget(optimizer);
  if (updates_) {
    updates_->discard(optimizer);
    unfit_->forget(parameters);
  }
  strategy_->before_zero_grad(parameters);
  return true;
}

void TrainingOptimizerHost::stepped(const torch::optim::Optimizer& optimizer,
                                    const std::vector<at::Tensor>& parameters) {
  window_->used(parameters);
  checks_->own_steps().forget(optimizer);
  if (device::ReplayActions::current() != nullptr) return;  // the replays are the steps
  steps_->events->emit(Event(EventKind::kSpanEnd, kOptimizerSpan));
  const c10::Device device = state_.device();
  device::device_backend(device.type()).end_of_step(device);
  if (!updates_) steps_->count();  // those of scaled losses are counted where they are made
  const auto schedule = schedule_.lock();
  if (schedule && schedule->optimizer == &optimizer) schedule->scheduler->step();
}

void TrainingOptimizerHost::Steps::count() {
  Event step(EventKind::kStep);
  step.number = ++made;
  events->emit(step);
}

}  // namespace accelerate
