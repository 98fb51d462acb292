// A run as a table of comma-separated values.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "accelerate/tracker.h"
#include "tracking/csv_text.h"
#include "tracking/output_file.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

// <logging_dir>/<project>/metrics.csv: the columns "step", "time" and one for each name, a row for
// each call. A name that is new adds its column, for which the file is written anew: log what
// belongs together in one call. Groups have a column for each number, "losses/a". Hyperparameters
// stand in hparams.yml beside it. A value named "step" or "time" is in "step_" or "time_". The file
// of an earlier run is renamed, unless this one goes on with it.
class CsvTracker : public GeneralTracker {
 public:
  explicit CsvTracker(CsvTrackerOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "csv"; }
  bool requires_logging_directory() const override { return true; }
  void start(const TrackerRun& run) override;
  void store_init_configuration(const TrackerConfig& config) override;
  void log(std::span<const NamedValue> values, const TrackedStep& at) override;
  bool log_images(std::span<const TrackedImage> images, const TrackedStep& at) override;
  bool log_table(const TrackedTable& table, const TrackedStep& at) override;
  bool log_figure(const TrackedFigure& figure, const TrackedStep& at) override;
  bool log_artifact(const TrackedArtifact& artifact) override;
  void continue_run() override;
  void flush() override;
  void finish() override { flush(); }

 private:
  void open();
  size_t column(const std::string& name);
  // The file again: without what `cuts` takes away, and with all columns.
  void rewrite(const StepCuts& cuts);

  const CsvTrackerOptions options_;
  std::filesystem::path folder_;
  OutputFile file_;
  CsvRow header_;
  std::map<std::string, size_t, std::less<>> columns_;
  std::vector<CsvRow> waiting_;  // rows of the next flush
  bool has_new_columns_ = false;
  bool is_damaged_ = false;
  StepCutter cutter_;
};

}  // namespace accelerate::tracking
