// Stand-ins for the training that a prepared optimizer or scheduler is part of.
#pragma once

#include <accelerate/prepared_optimizer.h>
#include <accelerate/prepared_scheduler.h>

#include <functional>
#include <memory>
#include <utility>

namespace accelerate::test {

// What is set is asked instead of the answers of OptimizerHost.
struct ScriptedOptimizerHost final : OptimizerHost {
  using RunUpdate =
      std::function<bool(torch::optim::Optimizer& optimizer, const std::function<void()>& update)>;

  explicit ScriptedOptimizerHost(std::function<bool()> sync, RunUpdate run = nullptr)
      : sync(std::move(sync)), run(std::move(run)) {}

  bool sync_gradients() const override { return !sync || sync(); }
  bool scales_losses() const override { return run != nullptr; }
  bool run_update(torch::optim::Optimizer& optimizer,
                  const std::function<void()>& update) override {
    return run(optimizer, update);
  }

  std::function<bool()> sync;
  RunUpdate run;
};

// What is set is asked instead of the answers of SchedulerHost.
struct ScriptedSchedulerHost final : SchedulerHost {
  explicit ScriptedSchedulerHost(std::function<bool()> sync,
                                 std::function<bool()> skipped = nullptr,
                                 std::function<void()> agree = nullptr)
      : sync(std::move(sync)), skipped(std::move(skipped)), agree(std::move(agree)) {}

  bool sync_gradients() const override { return !sync || sync(); }
  bool optimizer_step_was_skipped() const override { return skipped && skipped(); }
  void agree_groups() override {
    if (agree) agree();
  }

  std::function<bool()> sync;
  std::function<bool()> skipped;
  std::function<void()> agree;
};

}  // namespace accelerate::test
