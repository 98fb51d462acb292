// Histograms of values.
#pragma once

#include <span>
#include <string>

#include "accelerate/tracker.h"

namespace accelerate::tracking {

// With the buckets that TensorBoard's writers use: limits that grow by 1.1 from 1e-12 up, both
// ways from zero; empty buckets at both ends are left out. Values that are not finite are left
// out.
TrackedHistogram histogram_of(std::string name, std::span<const double> values);

}  // namespace accelerate::tracking
