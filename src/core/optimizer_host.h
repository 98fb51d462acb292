// The training of an accelerator, as its optimizers see it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/prepared_optimizer.h"
#include "accelerate/prepared_scheduler.h"
#include "accelerate/process_state.h"
#include "accelerate/strategy.h"
#include "base/events.h"
#include "core/configured/configured_clipping.h"
#include "core/gradient_window.h"
#include "core/scaled_updates.h"
#include "core/training_checks.h"
#include "core/unfit_gradients.h"

namespace accelerate {

// The schedule of a configuration that the program does not advance itself.
struct ScheduleOfUpdates {
  const torch::optim::Optimizer* optimizer = nullptr;
  std::optional<PreparedScheduler> scheduler{};
};

// One for all optimizers of an accelerator, which may outlive it.
class TrainingOptimizerHost final : public OptimizerHost {
 public:
  // `updates` and `unfit` are null unless losses are scaled.
  TrainingOptimizerHost(ProcessState state, std::shared_ptr<Strategy> strategy,
                        std::shared_ptr<GradientWindow> window,
                        std::shared_ptr<ScaledUpdates> updates,
                        std::shared_ptr<UnfitGradients> unfit,
                        std::shared_ptr<TrainingChecks> checks, std::shared_ptr<EventStream> events)
      : state_(std::move(state)),
        strategy_(std::move(strategy)),
        window_(std::move(window)),
        updates_(std::move(updates)),
        unfit_(std::move(unfit)),
        checks_(std::move(checks)),
        steps_(std::make_shared<Steps>(std::move(events))) {}

  // `clipping` may be null. The schedule is the accelerator's.
  void configure(std::shared_ptr<ConfiguredClipping> clipping,
                 const std::shared_ptr<ScheduleOfUpdates>& schedule) {
    clipping_ = std::move(clipping);
    schedule_ = schedule;
  }

  int rank() const override { return state_.rank(); }
  int world_size() const override { return state_.world_size(); }
  void before_step() override;
  bool sync_gradients() const override { return window_->sync_gradients(); }
  bool accumulates() const override { return window_->steps() > 1; }
  void require_complete(const std::vector<at::Tensor>& parameters) const override {
    window_->require_complete(parameters);
    if (unfit_) unfit_->require_none(parameters, "step");
  }
  bool scales_losses() const override { return updates_ != nullptr; }
  void before_update(torch::optim::Optimizer& optimizer) override;
  void finish_gradients(torch::optim::Optimizer& optimizer,
                        const std::vector<at::Tensor>& parameters) override;
  bool run_update(torch::optim::Optimizer& optimizer, const std::function<void()>& update) override;
  bool run_update_on_device(torch::optim::Optimizer& optimizer,
                            const std::function<void(const at::Tensor& found_inf)>& update,
                            std::function<void(bool skipped)> ended) override;
  void settle() override;
  bool begin_zero_grad(const torch::optim::Optimizer& optimizer,
                       const std::vector<at::Tensor>& parameters) override;
  void stepped(const torch::optim::Optimizer& optimizer,
               const std::vector<at::Tensor>& parameters) override;

 private:
  ProcessState state_;
  std::shared_ptr<Strategy> strategy_;
  std::shared_ptr<GradientWindow> window_;
  std::shared_ptr<ScaledUpdates> updates_;
  std::shared_ptr<UnfitGradients> unfit_;
  std::shared_ptr<TrainingChecks> checks_;
  std::shared_ptr<ConfiguredClipping> clipping_;
  std::weak_ptr<ScheduleOfUpdates> schedule_;  // weak: it leads to the optimizers, and so to this
  // Of all these optimizers. An update on a device is counted when it is known how it ended.
  struct Steps {
    explicit Steps(std::shared_ptr<EventStream> to) : events(std::move(to)) {}
    void count();

    const std::shared_ptr<EventStream> events;
    int64_t made = 0;
  };
  const std::shared_ptr<Steps> steps_;
};

}  // namespace accelerate
