// How long the steps of training loops take, alone and in turns with another loop.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "training_loop.h"

namespace bench {

// The value below which the share `q` (0 to 1) of `values` lies. `values` must not be empty.
double quantile(std::vector<double> values, double q);

// {"p50_us", "p99_us", "steps"} of step times.
nlohmann::json summary(const std::vector<double>& seconds);

// Steps before anything is timed: buckets are rebuilt, caches and allocators filled.
void warm_up(TrainingLoop& loop);

// Runs `steps` steps and appends the seconds of each to `times`.
void time_steps(TrainingLoop& loop, int steps, std::vector<double>& times);

// Times of a loop under test and of the one it is measured against. They run in turns of a few
// steps, so that what happens on the machine meanwhile hits both alike.
class PairedTimes {
 public:
  // Runs `pairs` times one loop, twice the other and again the first, a few steps each, so that a
  // machine that becomes slower or faster meanwhile slows both. Which is the first alternates.
  // `align` runs before each turn and brings the ranks together.
  void measure(TrainingLoop& tested, TrainingLoop& reference, int pairs,
               const std::function<void()>& align);

  // Both summaries; of the pairs the median of tested time over reference time, its
  // quartiles, and the median of the time that the tested loop takes longer.
  nlohmann::json report() const;

 private:
  std::vector<double> tested_;
  std::vector<double> reference_;
  std::vector<double> ratios_;  // of pairs
  std::vector<double> extra_;   // seconds a step, of pairs
};

}  // namespace bench
