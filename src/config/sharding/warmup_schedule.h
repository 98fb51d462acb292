// The warm-up schedules of DeepSpeed as functions of the number of updates: WarmupLR,
// WarmupDecayLR and WarmupCosineLR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace accelerate::config {

enum class WarmupKind { kConstant, kLinearDecay, kCosineDecay };
enum class WarmupCurve { kLogarithmic, kLinear };

// What such a schedule is made of. Rates have one value for all parameter groups or one for each.
struct WarmupSchedule {
  WarmupKind kind = WarmupKind::kConstant;  // after the warm-up
  WarmupCurve curve = WarmupCurve::kLogarithmic;
  int64_t warmup_steps = 1000;  // at least 2 are made of it
  int64_t total_steps = 0;      // of the schedules that decay
  // Rates of kConstant and kLinearDecay. An empty `max_lr` is the rate of the first group.
  std::vector<double> min_lr{0.0};
  std::vector<double> max_lr{};
  // kCosineDecay goes by the rate that each group began with.
  double warmup_min_ratio = 0.0;
  double cosine_min_ratio = 0.0001;

  bool operator==(const WarmupSchedule&) const = default;
};

// The rate of parameter group `group` after `updates` updates of the optimizer, of which the groups
// had the rates `initial_lrs` before the schedule came. The first update uses that after none:
// min_lr, or 0 for kCosineDecay.
double warmup_rate(const WarmupSchedule& schedule, int64_t updates,
                   const std::vector<double>& initial_lrs, size_t group = 0);

// Throws ConfigError if `schedule` has rates for another number of groups.
void check_warmup_groups(const WarmupSchedule& schedule, size_t groups);

}  // namespace accelerate::config
