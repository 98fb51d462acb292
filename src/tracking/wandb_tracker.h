// A run of Weights & Biases that is not connected: the folder that `wandb sync` sends.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/tracker.h"
#include "tracking/output_file.h"
#include "tracking/protobuf.h"

namespace accelerate::tracking {

// <dir>/wandb/offline-run-<time>-<id>/run-<id>.wandb, and files/ beside it. Values of one step are
// one row, as W&B has it: a row is complete when the next step begins or after a second. Steps of
// W&B only grow: values of an earlier step are refused, after a checkpoint was loaded they are left
// out up to the last step that the run has.
//
// With a logging directory <logging_dir>/<project>/wandb_run.json says which run it was, so that a
// run that continues has its id.
class WandbTracker : public GeneralTracker {
 public:
  explicit WandbTracker(WandbOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "wandb"; }
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
  void flush_before_end() override;
  void finish() override;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  using Item = std::pair<std::vector<std::string>, std::string>;  // nested key, value as JSON

  // Makes the row of `at` the current one. False if its values are to be left out.
  bool begin_row(const TrackedStep& at);
  void add_item(std::vector<std::string> key, std::string json);
  // Of something that stands in a file below files/.
  void add_file_item(const std::string& name, const char* kind, const std::string& path,
                     std::string_view bytes);
  void store_media(const std::string& path, std::string_view bytes);
  void write_row();
  void write_record(uint32_t kind, const ProtobufMessage& content);
  void write_run(const TrackerRun& run, const std::string& id, bool resumed);

  const WandbOptions options_;
  std::filesystem::path folder_;
  std::string stream_;
  OutputFile file_;
  int64_t next_number_ = 1;
  double begin_seconds_ = 0;
  std::optional<int64_t> last_step_;  // of rows that were written, or begun
  bool has_row_ = false;
  bool skips_ = false;  // what was already written
  double row_seconds_ = 0;
  std::chrono::steady_clock::time_point row_changed_{};
  std::vector<Item> row_;
};

}  // namespace accelerate::tracking
