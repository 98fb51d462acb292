// The training of an accelerator, as one of its schedulers sees it.
#pragma once

#include <memory>
#include <utility>

#include "accelerate/prepared_scheduler.h"
#include "accelerate/process_state.h"
#include "core/gradient_window.h"
#include "core/prepared_optimizers.h"
#include "core/scaled_updates.h"

namespace accelerate {

// One for each scheduler of an accelerator, which it may outlive.
class TrainingSchedulerHost final : public SchedulerHost {
 public:
  // `updates` is null unless losses are scaled.
  TrainingSchedulerHost(ProcessState state, const Scheduler& scheduler,
                        std::shared_ptr<GradientWindow> window,
                        std::shared_ptr<PreparedOptimizers> optimizers,
                        const std::shared_ptr<ScaledUpdates>& updates)
      : state_(std::move(state)),
        scheduler_(scheduler),
        window_(std::move(window)),
        optimizers_(std::move(optimizers)),
        updates_(updates) {}

  bool sync_gradients() const override { return window_->sync_gradients(); }
  // Throws UsageError if its optimizer was not prepared.
  bool optimizer_step_was_skipped() const override;
  void when_updates_are_known(std::function<void()> then) override;
  void settle() override;
  void agree_groups() override;

 private:
  // Null where it was not prepared.
  const PreparedOptimizer* optimizer() const;

  ProcessState state_;
  Scheduler scheduler_;
  std::shared_ptr<GradientWindow> window_;
  std::shared_ptr<PreparedOptimizers> optimizers_;
  std::weak_ptr<ScaledUpdates> updates_;  // weak: what waits there holds this
};

}  // namespace accelerate
