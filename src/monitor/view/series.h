// A curve that grows for as long as a run does, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accelerate::monitor {

struct Point {
  double step = 0;
  double seconds = 0;  // of the run
  double value = 0;    // the mean where several were put together
  double least = 0;
  double most = 0;
  double weight = 1;  // how many
};

// Points in the order of their steps. A step that is not beyond the last one takes the place of all
// from there on: a run that goes on from a checkpoint repeats steps. Neighbours are put together
// when there are more than kMostPoints.
class Series {
 public:
  static constexpr size_t kMostPoints = 2048;

  void add(double step, double seconds, double value);

  const std::vector<Point>& points() const { return points_; }
  // Changes when points before the last one are no more what they were.
  uint64_t generation() const { return generation_; }

 private:
  void halve();

  std::vector<Point> points_;
  double per_point_ = 1;  // how many values a point holds
  uint64_t generation_ = 0;
};

}  // namespace accelerate::monitor
