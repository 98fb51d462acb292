#include "accelerate/prepared_scheduler.h"

#include <string>
#include <utility>

#include "accelerate/log.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

bool is_over(const Scheduler& scheduler) {
  const auto length = scheduler.total_steps();
  return length && scheduler.last_epoch() >= *length;
}

}  // namespace

PreparedScheduler::PreparedScheduler(Scheduler scheduler, const SchedulerContext& context,
                                     PreparedSchedulerOptions options,
                                     std::shared_ptr<SchedulerHost> host)
    : scheduler_(scheduler),
      context_(context),
      options_(options),
      host_(host ? std::move(host) : std::make_shared<SchedulerHost>()) {
  if (!context_.is_main_process || !context_.says_pace) return;
  if (context_.num_processes == 1) return;
  if (scheduler_.needs_metric() || !options_.step_with_optimizer) return;
  const bool several = steps_a_call() > 1;
  const bool by_default = several && !options_.pace;
  log(by_default ? LogLevel::kWarning : LogLevel::kInfo,
      "the scheduler makes " + std::to_string(steps_a_call()) + (several ? " steps" : " step") +
          " per call on " + std::to_string(context_.num_processes) + " processes" +
          (by_default ? ", which suits a schedule made for the data of one process; set "
                        ".scheduler = {.pace = SchedulerPace::kPerOptimizerStep} for one step per "
                        "call, or "
                        "SchedulerPace::kPerProcess to keep it"
                      : ""));
}

int64_t PreparedScheduler::steps_a_call() const {
  const bool one = options_.pace == SchedulerPace::kPerOptimizerStep || context_.split_batches;
  return one ? 1 : context_.num_processes;
}

void PreparedScheduler::step() {
  if (auto* actions = device::ReplayActions::current()) {
    // Copies share the schedule: the action outlives this handle.
    actions->add_after([self = *this]() mutable { self.step(); });
    return;
  }
  if (!options_.step_with_optimizer) return scheduler_.step();
  if (!host_->sync_gradients()) {
    if (context_.adjust_scheduler) scheduler_.add_to_step_count(1);
    return;
  }
  host_->when_updates_are_known([self = *this]() mutable { self.step_unless_skipped(); });
}

void PreparedScheduler::step_unless_skipped() {
  if (host_->optimizer_step_was_skipped()) return;
  host_->agree_groups();
  for (int64_t step = 0; step < steps_a_call() && !is_over(scheduler_); ++step) scheduler_.step();
  host_->agree_groups();
}

void PreparedScheduler::step(double metric_or_epoch) { scheduler().step(metric_or_epoch); }

}  // namespace accelerate
