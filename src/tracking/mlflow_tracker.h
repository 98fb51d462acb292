// A run in MLflow.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accelerate/tracker.h"
#include "tracking/mlflow_store.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

// Numbers become metrics ("losses/a" for those of a group), hyperparameters become parameters,
// images, figures and tables artifacts. Texts are no metrics: they are kept as the artifact
// texts.txt. What a server does not take, because it cannot be reached, waits in memory and is
// tried again, up to kMostWaiting metrics.
//
// With a logging directory <logging_dir>/<project>/mlflow_run.json says which run it was, so that
// a run that continues finds it again. A folder then loses what stands at later steps; a server
// cannot, so values up to the last step that it has of a name are not sent again.
class MlflowTracker : public GeneralTracker {
 public:
  static constexpr size_t kMostWaiting = 200'000;

  explicit MlflowTracker(MlflowOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "mlflow"; }
  void start(const TrackerRun& run) override;
  void store_init_configuration(const TrackerConfig& config) override;
  void log(std::span<const NamedValue> values, const TrackedStep& at) override;
  bool log_images(std::span<const TrackedImage> images, const TrackedStep& at) override;
  bool log_table(const TrackedTable& table, const TrackedStep& at) override;
  bool log_figure(const TrackedFigure& figure, const TrackedStep& at) override;
  bool log_artifact(const TrackedArtifact& artifact) override;
  void continue_run() override;
  void flush() override;
  void flush_before_end() override;
  void finish() override;

 private:
  void add(const std::string& name, double value, const TrackedStep& at);
  void send();

  const MlflowOptions options_;
  std::unique_ptr<MlflowStore> store_;
  std::vector<MlflowMetric> metrics_;  // that wait
  MlflowTexts parameters_;             // the same
  std::string texts_;
  bool has_new_texts_ = false;
  StepCutter cutter_;
  StepSkipper skipper_;
  std::chrono::steady_clock::time_point next_try_{};
  std::chrono::milliseconds pause_{0};  // after an attempt that failed
};

}  // namespace accelerate::tracking
