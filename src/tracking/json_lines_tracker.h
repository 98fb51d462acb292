// A run as lines of JSON.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "accelerate/tracker.h"
#include "tracking/output_file.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

// <logging_dir>/<project>/metrics.jsonl, a line for each call:
//   {"time":1700000000.5,"project":"a","config":{"lr":0.1}}
//   {"step":1,"time":1700000001.5,"loss":0.5,"losses":{"a":1.0}}
//   {"step":1,"time":1700000001.5,"images":{"sample":"images/sample_1.png"}}
// Numbers that are not finite are texts, as JSON has none for them. A value named "step" or "time"
// is written as "step_" or "time_". The file of an earlier run is renamed, unless this one goes on
// with it.
class JsonLinesTracker : public GeneralTracker {
 public:
  explicit JsonLinesTracker(JsonLinesTrackerOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "jsonl"; }
  bool requires_logging_directory() const override { return true; }
  void start(const TrackerRun& run) override;
  void store_init_configuration(const TrackerConfig& config) override;
  void log(std::span<const NamedValue> values, const TrackedStep& at) override;
  bool log_images(std::span<const TrackedImage> images, const TrackedStep& at) override;
  bool log_table(const TrackedTable& table, const TrackedStep& at) override;
  bool log_histogram(const TrackedHistogram& histogram, const TrackedStep& at) override;
  bool log_figure(const TrackedFigure& figure, const TrackedStep& at) override;
  bool log_artifact(const TrackedArtifact& artifact) override;
  void continue_run() override;
  void flush() override;
  void finish() override;

 private:
  OutputFile& file();
  void write_line(std::string line);
  void take_away(const StepCuts& cuts);

  const JsonLinesTrackerOptions options_;
  TrackerRun run_;
  std::filesystem::path folder_;
  OutputFile file_;
  std::string config_line_;  // of a file that is not open yet
  StepCutter cutter_;
};

}  // namespace accelerate::tracking
