// The value in the middle. Standard headers only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace accelerate {

// The mean of both where two are in the middle; 0 of nothing.
inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace accelerate
