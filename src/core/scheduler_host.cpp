#include "core/scheduler_host.h"

#include "accelerate/detail/stamped.h"

namespace accelerate {

const PreparedOptimizer* TrainingSchedulerHost::optimizer() const {
  const auto* moved = scheduler_.optimizer_if_known();
  return moved != nullptr ? optimizers_->find(*moved) : nullptr;
}

bool TrainingSchedulerHost::optimizer_step_was_skipped() const {
  if (const PreparedOptimizer* prepared = optimizer()) return prepared->step_was_skipped();
  detail::throw_usage_error(
      state_, {.what = "a scheduler changes an optimizer that is not prepared",
               .where = "PreparedScheduler::step",
               .hint = "give the optimizer to prepare() too, and keep what comes back"});
}

void TrainingSchedulerHost::when_updates_are_known(std::function<void()> then) {
  if (const auto updates = updates_.lock()) return updates->when_known(std::move(then));
  then();
}

void TrainingSchedulerHost::settle() {
  if (const auto updates = updates_.lock()) updates->settle();
}

void TrainingSchedulerHost::agree_groups() {
  if (const PreparedOptimizer* prepared = optimizer()) prepared->agree_groups();
}

}  // namespace accelerate
