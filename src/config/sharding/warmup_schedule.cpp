#include "config/sharding/warmup_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

constexpr int64_t kFewestWarmupSteps = 2;  // the logarithm of 1 is 0

double of_group(const std::vector<double>& values, size_t group) {
  return values.size() == 1 ? values.front() : values.at(group);
}

// How far the warm-up has come, from 0 to 1.
double warmup_progress(const WarmupSchedule& schedule, int64_t step, int64_t warmup_steps) {
  if (schedule.curve == WarmupCurve::kLinear) {
    return static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  const double inverse = 1.0 / std::log(static_cast<double>(warmup_steps));
  return inverse * std::log(static_cast<double>(step + 1));
}

double linear_decay(int64_t step, int64_t warmup_steps, int64_t total_steps) {
  const double length = std::max(1.0, static_cast<double>(total_steps - warmup_steps));
  return std::max(0.0, static_cast<double>(total_steps - step) / length);
}

double cosine_ratio(const WarmupSchedule& schedule, int64_t step, int64_t warmup_steps) {
  const double length =
      static_cast<double>(std::max<int64_t>(1, schedule.total_steps - warmup_steps));
  // The first step after the warm-up has begun to decay, and the end is the end.
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps + 1) / length);
  const double wave = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return std::max(0.0, schedule.cosine_min_ratio + (1.0 - schedule.cosine_min_ratio) * wave);
}

// The factor of the initial rate.
double cosine_schedule(const WarmupSchedule& schedule, int64_t step, int64_t warmup_steps) {
  if (step >= warmup_steps) return cosine_ratio(schedule, step, warmup_steps);
  const double progress = warmup_progress(schedule, step, warmup_steps);
  return schedule.warmup_min_ratio + progress * (1.0 - schedule.warmup_min_ratio);
}

// How far the rate is on its way from min_lr to max_lr.
double warmup_gamma(const WarmupSchedule& schedule, int64_t step, int64_t warmup_steps) {
  if (step < warmup_steps) return warmup_progress(schedule, step, warmup_steps);
  if (schedule.kind == WarmupKind::kConstant) return 1.0;
  return linear_decay(step, warmup_steps, schedule.total_steps);
}

}  // namespace

double warmup_rate(const WarmupSchedule& schedule, int64_t updates,
                   const std::vector<double>& initial_lrs, size_t group) {
  const int64_t warmup_steps = std::max(kFewestWarmupSteps, schedule.warmup_steps);
  const int64_t step = updates - 1;  // the schedule counts from 0 once it has been stepped
  if (schedule.kind == WarmupKind::kCosineDecay) {
    return step < 0 ? 0.0 : initial_lrs.at(group) * cosine_schedule(schedule, step, warmup_steps);
  }
  const double least = of_group(schedule.min_lr, group);
  if (step < 0) return least;
  const double most =
      schedule.max_lr.empty() ? initial_lrs.at(0) : of_group(schedule.max_lr, group);
  return least + (most - least) * warmup_gamma(schedule, step, warmup_steps);
}

void check_warmup_groups(const WarmupSchedule& schedule, size_t groups) {
  for (const auto* rates : {&schedule.min_lr, &schedule.max_lr}) {
    if (rates->size() <= 1 || rates->size() == groups) continue;
    throw ConfigError({.what = "the warm-up schedule has " + std::to_string(rates->size()) +
                               " rates, the optimizer has " + std::to_string(groups) +
                               " parameter groups",
                       .where = rates == &schedule.min_lr ? "scheduler.params.warmup_min_lr"
                                                          : "scheduler.params.warmup_max_lr",
                       .hint = "write one rate for all groups, or one for each"});
  }
}

}  // namespace accelerate::config
