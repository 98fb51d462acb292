// Event files that TensorBoard reads, in the folders in which the Python library puts them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "accelerate/tracker.h"
#include "tracking/event_folder.h"

namespace accelerate::tracking {

class TensorBoardTracker : public GeneralTracker {
 public:
  explicit TensorBoardTracker(TensorBoardOptions options,
                              EventFileNames names = EventFileNames::of_this_process());

  std::string name() const override { return "tensorboard"; }
  bool requires_logging_directory() const override { return true; }
  void start(const TrackerRun& run) override;
  void store_init_configuration(const TrackerConfig& config) override;
  void log(std::span<const NamedValue> values, const TrackedStep& at) override;
  bool log_images(std::span<const TrackedImage> images, const TrackedStep& at) override;
  // As a text in Markdown.
  bool log_table(const TrackedTable& table, const TrackedStep& at) override;
  bool log_histogram(const TrackedHistogram& histogram, const TrackedStep& at) override;
  // Of PNG files; others are not shown.
  bool log_figure(const TrackedFigure& figure, const TrackedStep& at) override;
  void continue_run() override;
  void flush() override;
  void finish() override { flush(); }

 private:
  EventFolder& group_folder(std::string name);
  void log_text(std::string_view tag, std::string_view text, const TrackedStep& at);

  const TensorBoardOptions options_;
  EventFileNames names_;
  std::optional<EventFolder> main_;
  std::map<std::string, EventFolder> groups_;  // "losses_a": TensorBoard shows it as a run
  bool continues_ = false;
};

}  // namespace accelerate::tracking
