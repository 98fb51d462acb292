#include "paired_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace bench {
namespace {

constexpr int kWarmUpSteps = 64;
constexpr int kStepsATurn = 4;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

nlohmann::json summary(const std::vector<double>& seconds) {
  return {{"p50_us", 1e6 * quantile(seconds, 0.5)},
          {"p99_us", 1e6 * quantile(seconds, 0.99)},
          {"steps", seconds.size()}};
}

void warm_up(TrainingLoop& loop) {
  for (int step = 0; step < kWarmUpSteps; ++step) loop.step();
}

void time_steps(TrainingLoop& loop, int steps, std::vector<double>& times) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = Clock::now();
  for (int step = 0; step < steps; ++step) {
    loop.step();
    const Clock::time_point now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - before).count());
    before = now;
  }
}

void PairedTimes::measure(TrainingLoop& tested, TrainingLoop& reference, int pairs,
                          const std::function<void()>& align) {
  for (int pair = 0; pair < pairs; ++pair) {
    std::vector<double> tested_steps;
    std::vector<double> reference_steps;
    const auto run_tested = [&] {
      align();
      time_steps(tested, kStepsATurn, tested_steps);
    };
    const auto run_reference = [&] {
      align();
      time_steps(reference, kStepsATurn, reference_steps);
    };
    const bool tested_outside = pair % 2 == 0;
    tested_outside ? run_tested() : run_reference();
    tested_outside ? run_reference() : run_tested();
    tested_outside ? run_reference() : run_tested();
    tested_outside ? run_tested() : run_reference();

    ratios_.push_back(mean(tested_steps) / mean(reference_steps));
    extra_.push_back(mean(tested_steps) - mean(reference_steps));
    tested_.insert(tested_.end(), tested_steps.begin(), tested_steps.end());
    reference_.insert(reference_.end(), reference_steps.begin(), reference_steps.end());
  }
}

nlohmann::json PairedTimes::report() const {
  return {{"tested", summary(tested_)},
          {"reference", summary(reference_)},
          {"pairs", ratios_.size()},
          {"time_ratio", quantile(ratios_, 0.5)},
          {"time_ratio_quartiles", {quantile(ratios_, 0.25), quantile(ratios_, 0.75)}},
          {"extra_us_a_step", 1e6 * quantile(extra_, 0.5)}};
}

}  // namespace bench
