// Where the steps of a rank went, from its events.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "accelerate/profiler.h"
#include "base/events.h"
#include "core/process/step_aggregator.h"

namespace accelerate {

// What Profile::step() emits when a step begins; behind it comes its number.
inline constexpr std::string_view kStepMark = "ProfilerStep#";

// Takes the events of a rank in their order. Steps end with those of prepared optimizers; where
// there are none, with the marks of Profile::step(). Used by one thread at a time.
class StepStatistics {
 public:
  // Steps before the mark of that number are left out.
  explicit StepStatistics(int64_t first_step) : first_step_(first_step) {}

  void take(const Event& event);
  // Events were missed.
  void forget_open();
  StepTimes times(int rank) const;

 private:
  static constexpr size_t kParts = 7;
  // The newest of them are kept.
  static constexpr size_t kMostSteps = size_t{1} << 20;
  struct OneStep {
    float total_us = 0;
    std::array<float, kParts> parts_us{};
  };
  // Steps in one way of counting them.
  struct Counted {
    StepAggregator aggregator{StepAggregator::Records::kOfEachStep};
    std::vector<OneStep> steps{};
    int64_t count = 0;

    void take(const Event& event);
  };

  const int64_t first_step_;
  bool has_begun_ = false;
  Counted by_optimizers_;
  Counted by_marks_;
};

}  // namespace accelerate
