#include "core/tracking/record_tracker.h"

#include <string_view>
#include <utility>
#include <vector>

namespace accelerate {

void RecordTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  const int64_t step = at.step.value_or(next_step_);
  next_step_ = step + 1;
  std::vector<std::pair<std::string_view, double>> numbers;
  numbers.reserve(values.size());
  for (const NamedValue& value : values) {
    if (const auto number = value.value.number()) numbers.emplace_back(value.name, *number);
  }
  if (!numbers.empty()) writer_.append_values(step, numbers);
}

}  // namespace accelerate
