// Learning-rate schedulers: a schedule applied to an optimizer, and the schedules that programs
// select by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/schedules.h"
#include "accelerate/state_dict.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

namespace detail {
struct TorchScheduler;
}

// Moves the learning rates of an optimizer along a schedule. A handle: copies share the schedule.
// One thread at a time. The optimizer must outlive it.
//
// The rates that the groups have when it is made are the initial ones; it sets those of step 0 at
// once. So make it before a checkpoint is loaded, and combine several schedules with
// sequential_lr or chained_scheduler, not with several schedulers.
class ACCELERATE_EXPORT Scheduler {
 public:
  // Throws UsageError if the schedule is already in use elsewhere.
  Scheduler(torch::optim::Optimizer& optimizer, Schedule schedule);
  Scheduler(const Scheduler&) = default;
  Scheduler& operator=(const Scheduler&) = default;

  // One step on. Throws UsageError if the schedule needs a metric or is over.
  void step();
  // One step on with the metric that the schedule depends on, or to an epoch for schedules that
  // accept fractional ones. Throws UsageError if the schedule takes neither.
  void step(double metric_or_epoch);

  // Whether each step needs a metric.
  bool needs_metric() const;
  // The rates of the groups after the last step.
  std::vector<double> last_lr() const;
  // Steps taken, not counting that of the constructor.
  int64_t last_epoch() const;
  // As torch counts: the constructor's step included, and what add_to_step_count() added.
  int64_t step_count() const;
  void add_to_step_count(int64_t steps);
  // The length of a schedule that has an end.
  std::optional<int64_t> total_steps() const;

  // The keys and values of torch's state_dict() for the schedule of that name.
  StateDict state_dict() const;
  // Continues where `state` was taken, and sets its rates in the optimizer. Throws CheckpointError
  // if the state is of another schedule or another number of groups, or is invalid; the
  // schedule and the optimizer are then as before.
  void load_state_dict(const StateDict& state);
  // Throws what load_state_dict() would throw. Changes nothing.
  void check_state_dict(const StateDict& state) const;

  // Throws UsageError where the scheduler adapts one of torch whose optimizer is not prepared.
  torch::optim::Optimizer& optimizer() const;

  // Whether prepare() made it of a scheduler of torch::optim, which may refuse a state that
  // check_state_dict() takes: load_state_dict() then throws and has changed nothing.
  bool is_adapted() const { return adapted_; }
  // Internal: as optimizer(), null where that throws.
  torch::optim::Optimizer* optimizer_if_known() const;
  // Internal: finds this scheduler again for as long as a handle of it lives.
  std::function<std::optional<Scheduler>()> weak_handle() const;

 private:
  friend Scheduler adapt_torch_scheduler(
      detail::TorchScheduler adapted,
      std::function<torch::optim::Optimizer*(const std::function<std::vector<double>()>&)> find);
  struct ACCELERATE_HIDDEN Impl;
  Scheduler(std::function<torch::optim::Optimizer*()> find_optimizer, Schedule adapted);
  Scheduler(std::shared_ptr<Impl> impl, bool adapted) : impl_(std::move(impl)), adapted_(adapted) {}

  std::shared_ptr<Impl> impl_;
  bool adapted_ = false;
};

// Options of get_scheduler. The list below says which options each schedule takes; others throw
// UsageError.
struct SchedulerOptions {
  std::optional<int64_t> warmup_steps{};
  std::optional<int64_t> training_steps{};
  std::optional<double> num_cycles{};
  std::optional<double> lr_end{};
  std::optional<double> power{};
  std::optional<int64_t> timescale{};
  std::optional<double> min_lr{};
  std::optional<double> min_lr_rate{};
  std::optional<double> warmup_lr_rate{};
  std::optional<int64_t> decay_steps{};
  std::optional<int64_t> stable_steps{};
  std::optional<std::string> warmup_type{};
  std::optional<std::string> decay_type{};
  std::optional<double> min_lr_ratio{};
  std::optional<PlateauOptions> plateau{};
  std::optional<GreedyOptions> greedy{};
};

// A scheduler by the name that Transformers gives it. T: needs training_steps; all but constant and
// the last two need warmup_steps and go up in a line first. Where these two are not needed they are
// ignored, so that one name can be replaced by another.
//   linear T                  down to 0
//   cosine T                  half a wave down; num_cycles 0.5
//   cosine_with_restarts T    num_cycles (1) half waves
//   polynomial T              lr_end 1e-7, power 1
//   constant                  as it is
//   constant_with_warmup      as it is
//   inverse_sqrt              timescale: warmup_steps, or 10000 without a warm-up
//   cosine_with_min_lr T      min_lr or min_lr_rate; num_cycles 0.5
//   cosine_warmup_with_min_lr T   the same, and warmup_lr_rate, where the warm-up begins
//   warmup_stable_decay       decay_steps; stable_steps or training_steps; warmup_type linear,
//                             decay_type cosine (both also 1-sqrt), min_lr_ratio 0, num_cycles 0.5
//   reduce_lr_on_plateau      plateau
//   greedy                    greedy
// lr_end and min_lr are set against the default rate of the optimizer, not that of a group: groups
// with another rate end at the same share of it. Throws UsageError for an unknown name and for
// options that are missing or not taken.
ACCELERATE_EXPORT Scheduler get_scheduler(std::string_view name, torch::optim::Optimizer& optimizer,
                                          const SchedulerOptions& options = {});

}  // namespace accelerate
