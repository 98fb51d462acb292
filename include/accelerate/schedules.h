// Learning-rate schedules, under torch's names and with torch's defaults. A schedule is made by
// one of these functions and given to a Scheduler, which applies it to an optimizer:
//
//   accelerate::Scheduler scheduler(adamw, accelerate::sequential_lr(
//       {accelerate::linear_lr({.start_factor = 0.1, .total_iters = 8}),
//        accelerate::cosine_annealing_lr({.t_max = 32})}, {8}));
//
// All functions throw UsageError for invalid options. Rates are float64.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

class ScheduleRule;
// Belongs to one scheduler, or to one schedule made of several.
using Schedule = std::shared_ptr<ScheduleRule>;

// A number for each parameter group of the optimizer, or one for all of them.
class ACCELERATE_EXPORT GroupValues {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a value is what it holds
  GroupValues(double value) : values_{value}, for_all_(true) {}
  GroupValues(std::initializer_list<double> values) : values_(values) {}
  GroupValues(std::vector<double> values) : values_(std::move(values)) {}
  // NOLINTEND(google-explicit-constructor)

  // The one for all groups, unset where each has its own.
  std::optional<double> for_all() const {
    return for_all_ ? std::optional(values_.front()) : std::nullopt;
  }
  // Throws UsageError that names the option if their number is not that of the groups.
  std::vector<double> for_groups(size_t groups, const char* option) const;

 private:
  std::vector<double> values_;
  bool for_all_ = false;
};

// A factor for the learning rate of a group at a step, which counts from 0.
using RateFunction = std::function<double(int64_t step)>;

// The initial rate times the factor of the step. The functions, one for each group or one for all,
// are not part of the saved state.
ACCELERATE_EXPORT Schedule lambda_lr(RateFunction factor);
ACCELERATE_EXPORT Schedule lambda_lr(std::vector<RateFunction> factors);
// The current rate times the factor of the step; the first step is not scaled.
ACCELERATE_EXPORT Schedule multiplicative_lr(RateFunction factor);
ACCELERATE_EXPORT Schedule multiplicative_lr(std::vector<RateFunction> factors);

struct StepLrOptions {
  int64_t step_size = 0;  // must be given
  double gamma = 0.1;
};
// Times gamma every step_size steps.
ACCELERATE_EXPORT Schedule step_lr(const StepLrOptions& options);

struct MultiStepLrOptions {
  std::vector<int64_t> milestones{};
  double gamma = 0.1;
};
// Times gamma at each milestone; one that is listed twice counts twice.
ACCELERATE_EXPORT Schedule multi_step_lr(const MultiStepLrOptions& options);

struct ConstantLrOptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
// The initial rate times factor for the first total_iters steps. From a factor of 0 there is no way
// back: step total_iters throws UsageError, unless another schedule of sequential_lr begins there.
ACCELERATE_EXPORT Schedule constant_lr(const ConstantLrOptions& options);

struct LinearLrOptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1.0;
  int64_t total_iters = 5;
};
// A straight line from start_factor to end_factor over total_iters steps.
ACCELERATE_EXPORT Schedule linear_lr(const LinearLrOptions& options);

struct ExponentialLrOptions {
  double gamma = 1.0;
};
// Times gamma every step.
ACCELERATE_EXPORT Schedule exponential_lr(const ExponentialLrOptions& options);

struct PolynomialLrOptions {
  int64_t total_iters = 5;
  double power = 1.0;
};
// Down to 0 over total_iters steps.
ACCELERATE_EXPORT Schedule polynomial_lr(const PolynomialLrOptions& options);

struct CosineAnnealingLrOptions {
  int64_t t_max = 0;  // must be given: steps from the initial rate to eta_min
  double eta_min = 0.0;
};
// Half a cosine wave down, and up again after t_max steps.
ACCELERATE_EXPORT Schedule cosine_annealing_lr(const CosineAnnealingLrOptions& options);

struct WarmRestartsOptions {
  int64_t t_0 = 0;  // must be given: steps until the first restart
  int64_t t_mult = 1;
  double eta_min = 0.0;
};
// Half a cosine wave down, then back to the initial rate; each wave t_mult times as long as the one
// before. Scheduler::step(epoch) moves to a broken epoch.
ACCELERATE_EXPORT Schedule cosine_annealing_warm_restarts(const WarmRestartsOptions& options);

struct OneCycleLrOptions {
  GroupValues max_lr = 0.0;              // must be given
  std::optional<int64_t> total_steps{};  // or both of the next two
  std::optional<int64_t> epochs{};
  std::optional<int64_t> steps_per_epoch{};
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  // or "linear"
  bool cycle_momentum = true;
  GroupValues base_momentum = 0.85;
  GroupValues max_momentum = 0.95;
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  bool three_phase = false;
};
// Up to max_lr and down to nearly nothing, with the momentum (beta1 of Adam) the other way round.
// As in torch it takes one step more than it is long; the step after that throws UsageError, and
// so does this one where the last phase has no length (pct_start = 1).
ACCELERATE_EXPORT Schedule one_cycle_lr(const OneCycleLrOptions& options);

struct CyclicLrOptions {
  GroupValues base_lr = 0.0;  // must be given
  GroupValues max_lr = 0.0;   // must be given
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down{};  // as long as up
  std::string mode = "triangular";          // or "triangular2", "exp_range"
  double gamma = 1.0;                       // of exp_range
  bool cycle_momentum = true;
  GroupValues base_momentum = 0.8;
  GroupValues max_momentum = 0.9;
};
// Up and down between two rates, again and again.
ACCELERATE_EXPORT Schedule cyclic_lr(const CyclicLrOptions& options);

// One schedule after the other: the next one begins at each milestone.
ACCELERATE_EXPORT Schedule sequential_lr(std::vector<Schedule> schedules,
                                         std::vector<int64_t> milestones);
// All schedules at once: each changes the rates that the previous one set.
ACCELERATE_EXPORT Schedule chained_scheduler(std::vector<Schedule> schedules);

struct PlateauOptions {
  std::string mode = "min";  // or "max": whether a smaller or a larger metric is better
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";  // or "abs"
  int64_t cooldown = 0;
  GroupValues min_lr = 0.0;
  double eps = 1e-8;
};
// Multiplies by factor if the metric has not improved for more than `patience` steps. Each step
// needs the metric: Scheduler::step(metric).
ACCELERATE_EXPORT Schedule reduce_lr_on_plateau(const PlateauOptions& options);

struct GreedyOptions {
  std::string mode = "min";
  double factor = 0.95;
  int64_t patience = 10;
  double threshold = 1e-6;
  std::string threshold_mode = "abs";
  int64_t cooldown = 0;  // steps without a change after the rate went down
  int64_t warmup = 0;    // steps without a change after it went up
  GroupValues min_lr = 1e-3;
  GroupValues max_lr = 1.0;
  double eps = 1e-8;
  bool smooth = false;  // judge by the mean of the last window_size metrics
  int64_t window_size = 50;
  int64_t reset_start = 500;  // reductions at min_lr after which everything is reset
};
// Up while the metric keeps improving, down when it does not. Each step needs the metric.
ACCELERATE_EXPORT Schedule greedy_lr(const GreedyOptions& options);

}  // namespace accelerate
