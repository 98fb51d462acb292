#include "accelerate/prepared_scheduler.h"

#include <string>
#include <utility>

#include "accelerate/log.h"
#include "compat/replay_actions.h"

namespace accelerate {
namespace {

bool is_over(const Scheduler& scheduler) {
  const auto length = scheduler.total_steps();
  return length && scheduler.last_epoch() >= *length;
}

}  // namespace

PreparedScheduler::PreparedScheduler(Scheduler scheduler, SchedulerSurroundings surroundings,
                                     PreparedSchedulerOptions options)
    : scheduler_(scheduler), surroundings_(std::move(surroundings)), options_(options) {
  if (!surroundings_.is_main_process || !surroundings_.says_pace) return;
  if (surroundings_.num_processes == 1) return;
  if (scheduler_.needs_metric() || !options_.step_with_optimizer) return;
  const bool several = steps_a_call() > 1;
  const bool by_default = several && !options_.pace;
  log(by_default ? LogLevel::kWarning : LogLevel::kInfo,
      "the scheduler makes " + std::to_string(steps_a_call()) + (several ? " steps" : " step") +
          " per call on " + std::to_string(surroundings_.num_processes) + " processes" +
          (by_default ? ", which suits a schedule made for the data of one process; set "
                        ".scheduler = {.pace = SchedulerPace::kPerOptimizerStep} for one step per "
                        "call, or "
                        "SchedulerPace::kPerProcess to keep it"
                      : ""));
}

int64_t PreparedScheduler::steps_a_call() const {
  const bool one = options_.pace == SchedulerPace::kPerOptimizerStep || surroundings_.split_batches;
  return one ? 1 : surroundings_.num_processes;
}

void PreparedScheduler::step() {
  if (auto* actions = compat::ReplayActions::current()) {
    // Copies share the schedule: the action outlives this handle.
    actions->add_after([self = *this]() mutable { self.step(); });
    return;
  }
  if (!options_.step_with_optimizer) return scheduler_.step();
  if (surroundings_.sync_gradients && !surroundings_.sync_gradients()) {
    if (surroundings_.adjust_scheduler) scheduler_.add_to_step_count(1);
    return;
  }
  if (!surroundings_.when_updates_are_known) return step_unless_skipped();
  surroundings_.when_updates_are_known([self = *this]() mutable { self.step_unless_skipped(); });
}

void PreparedScheduler::step_unless_skipped() {
  if (surroundings_.optimizer_step_was_skipped && surroundings_.optimizer_step_was_skipped()) {
    return;
  }
  if (surroundings_.agree_groups) surroundings_.agree_groups();
  for (int64_t step = 0; step < steps_a_call() && !is_over(scheduler_); ++step) scheduler_.step();
  if (surroundings_.agree_groups) surroundings_.agree_groups();
}

void PreparedScheduler::step(double metric_or_epoch) { scheduler().step(metric_or_epoch); }

}  // namespace accelerate
