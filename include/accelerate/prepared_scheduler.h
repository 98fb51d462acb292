// A scheduler that belongs to an accelerator: it steps when the optimizer really stepped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/schedulers.h"

namespace accelerate {

// How many steps of the schedule one call of step() makes.
enum class SchedulerPace {
  // One for each process, because a schedule is written for the data of one process alone and the
  // ranks go through it together; one in all with split_batches, where batches keep their size.
  kPerProcess,
  // One, however many processes there are: the schedule is written in updates of the optimizer.
  kPerOptimizerStep,
};

// Where a prepared scheduler steps.
struct SchedulerContext {
  int num_processes = 1;
  bool is_main_process = true;
  bool says_pace = true;  // whether the main process logs how many steps a call makes
  bool split_batches = false;
  // Count micro-batches in which gradients only accumulate, as torch counts steps.
  bool adjust_scheduler = true;
};

// The training that a prepared scheduler is part of, as far as its steps depend on it. The
// accelerator has its own; this class itself is a training in which every update is made at once.
// Called by the thread of the training. Owned by the scheduler's handles.
class ACCELERATE_EXPORT SchedulerHost {
 public:
  SchedulerHost() = default;
  virtual ~SchedulerHost() = default;
  SchedulerHost(const SchedulerHost&) = delete;
  SchedulerHost& operator=(const SchedulerHost&) = delete;

  // False while gradients only accumulate.
  virtual bool sync_gradients() const { return true; }
  virtual bool optimizer_step_was_skipped() const { return false; }
  // Calls `then` when it is known how the updates so far ended: at once, or before the next update
  // if a GPU has not reported yet.
  virtual void when_updates_are_known(std::function<void()> then) { then(); }
  // Finds out how they ended; may wait for the device.
  virtual void settle() {}
  // Called before and after the rates are changed: see PreparedOptimizer::agree_groups().
  virtual void agree_groups() {}
};

struct PreparedSchedulerOptions {
  // Without it every call is one step of the schedule, whatever the optimizer did.
  bool step_with_optimizer = true;
  // Unset: kPerProcess, with a warning on several processes.
  std::optional<SchedulerPace> pace{};
};

// What Accelerator::prepare makes of a Scheduler: the same schedule behind a step() that the
// training loop may call after every batch. A handle: copies share the schedule, and a moved-from
// one stays valid. One thread at a time. Not collective: all ranks call it alike because they
// train alike.
class ACCELERATE_EXPORT PreparedScheduler {
 public:
  // Logs on the main process how many steps a call makes: as a warning if it is several by
  // default, else at level info. A null `host` means a scheduler that steps by itself.
  PreparedScheduler(Scheduler scheduler, const SchedulerContext& context,
                    PreparedSchedulerOptions options = {},
                    std::shared_ptr<SchedulerHost> host = nullptr);
  PreparedScheduler(const PreparedScheduler&) = default;
  PreparedScheduler& operator=(const PreparedScheduler&) = default;

  // Advances the schedule by the pace of the options. Does nothing if gradients only
  // accumulated or the optimizer skipped its step. A schedule with an end stays there. Under fp16
  // on a GPU the move is made before the next update, or when this handle is asked: nothing waits.
  void step();
  // One observation for a schedule that depends on a metric: once per call, at any time. For others
  // the epoch to move to. Throws UsageError if the schedule takes neither.
  void step(double metric_or_epoch);

  std::vector<double> last_lr() const { return scheduler().last_lr(); }
  StateDict state_dict() const { return scheduler().state_dict(); }
  void load_state_dict(const StateDict& state) { scheduler().load_state_dict(state); }
  // The user's own scheduler.
  Scheduler& scheduler() {
    settle();
    return scheduler_;
  }
  const Scheduler& scheduler() const {
    settle();
    return scheduler_;
  }

 private:
  int64_t steps_a_call() const;
  void step_unless_skipped();
  void settle() const { host_->settle(); }

  Scheduler scheduler_;
  SchedulerContext context_;
  PreparedSchedulerOptions options_;
  std::shared_ptr<SchedulerHost> host_;  // never null
};

}  // namespace accelerate
