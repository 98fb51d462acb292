#include "tracking/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace accelerate::tracking {
namespace {

std::vector<double> bucket_limits() {
  constexpr double kFirst = 1e-12;
  constexpr double kGrowth = 1.1;
  constexpr double kLast = 1e20;
  std::vector<double> positive;
  for (double limit = kFirst; limit < kLast; limit *= kGrowth) positive.push_back(limit);
  std::vector<double> limits;
  for (auto it = positive.rbegin(); it != positive.rend(); ++it) limits.push_back(-*it);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  limits.push_back(std::numeric_limits<double>::max());
  return limits;
}

}  // namespace

TrackedHistogram histogram_of(std::string name, std::span<const double> values) {
  static const std::vector<double> limits = bucket_limits();
  TrackedHistogram histogram{.name = std::move(name)};
  std::vector<double> counts(limits.size());
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const bool is_first = histogram.count == 0;
    histogram.min = is_first ? value : std::min(histogram.min, value);
    histogram.max = is_first ? value : std::max(histogram.max, value);
    histogram.count += 1;
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
    const auto limit = std::ranges::lower_bound(limits, value);
    counts[static_cast<size_t>(limit - limits.begin())] += 1;
  }
  if (histogram.count == 0) {  // a bucket is there all the same: readers expect one
    histogram.limits = {0};
    histogram.counts = {0};
    return histogram;
  }
  const auto first = std::ranges::find_if(counts, [](double count) { return count > 0; });
  const auto last =
      std::find_if(counts.rbegin(), counts.rend(), [](double count) { return count > 0; }).base();
  // The bucket before the first one says where that begins.
  const auto begin =
      static_cast<size_t>(first - counts.begin()) - (first == counts.begin() ? 0 : 1);
  const auto end = static_cast<size_t>(last - counts.begin());
  for (size_t bucket = begin; bucket < end; ++bucket) {
    histogram.limits.push_back(limits[bucket]);
    histogram.counts.push_back(counts[bucket]);
  }
  return histogram;
}

}  // namespace accelerate::tracking
