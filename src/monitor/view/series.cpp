#include "monitor/view/series.h"

#include <algorithm>
#include <cmath>

namespace accelerate::monitor {
namespace {

Point together(const Point& one, const Point& other) {
  const double weight = one.weight + other.weight;
  return {.step = other.step,
          .seconds = other.seconds,
          .value = (one.value * one.weight + other.value * other.weight) / weight,
          .least = std::min(one.least, other.least),
          .most = std::max(one.most, other.most),
          .weight = weight};
}

}  // namespace

void Series::add(double step, double seconds, double value) {
  const size_t before = points_.size();
  while (!points_.empty() && points_.back().step >= step) points_.pop_back();
  if (points_.size() < before) ++generation_;
  const Point point{
      .step = step, .seconds = seconds, .value = value, .least = value, .most = value};
  // What is not a number stays visible as a gap: it is not put together with others.
  const bool joins = !points_.empty() && points_.back().weight < per_point_ &&
                     std::isfinite(points_.back().value) && std::isfinite(value);
  if (joins) {
    points_.back() = together(points_.back(), point);
  } else {
    points_.push_back(point);
  }
  if (points_.size() > kMostPoints) halve();
}

void Series::halve() {
  per_point_ *= 2;
  ++generation_;
  std::vector<Point> fewer;
  fewer.reserve(points_.size() / 2 + 1);
  for (size_t i = 0; i < points_.size(); ++i) {
    const bool has_pair = i + 1 < points_.size() && std::isfinite(points_[i].value) &&
                          std::isfinite(points_[i + 1].value);
    fewer.push_back(has_pair ? together(points_[i], points_[i + 1]) : points_[i]);
    if (has_pair) ++i;
  }
  // A run of values that are no numbers: as many points as before would make this happen each time.
  if (fewer.size() > kMostPoints) fewer.erase(fewer.begin(), fewer.end() - kMostPoints / 2);
  points_ = std::move(fewer);
}

}  // namespace accelerate::monitor
