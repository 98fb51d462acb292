#include "accelerate/tracker.h"

namespace accelerate {

// Of a tracker without anything to do.
GeneralTracker::~GeneralTracker() = default;
void GeneralTracker::start(const TrackerRun& /*run*/) {}
bool GeneralTracker::log_images(std::span<const TrackedImage> /*images*/,
                                const TrackedStep& /*at*/) {
  return false;
}
bool GeneralTracker::log_table(const TrackedTable& /*table*/, const TrackedStep& /*at*/) {
  return false;
}
bool GeneralTracker::log_histogram(const TrackedHistogram& /*histogram*/,
                                   const TrackedStep& /*at*/) {
  return false;
}
bool GeneralTracker::log_figure(const TrackedFigure& /*figure*/, const TrackedStep& /*at*/) {
  return false;
}
bool GeneralTracker::log_artifact(const TrackedArtifact& /*artifact*/) { return false; }
void GeneralTracker::continue_run() {}
void GeneralTracker::flush() {}
void GeneralTracker::flush_before_end() { flush(); }
void GeneralTracker::finish() {}

}  // namespace accelerate
