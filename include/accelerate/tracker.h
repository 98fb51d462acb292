// What a run is tracked with: the values it logs, the options of the trackers that the library has
// (TensorBoard, CSV, JSON lines, MLflow, Weights & Biases), and the interface of one's own.
// Standard headers only. Accelerator::init_trackers() starts them; see docs/tracking.md.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/export.h"

namespace accelerate {

// A tracker that cannot write: a full disk, a folder without permission, a server that refuses.
class ACCELERATE_EXPORT TrackerError : public Error {
 public:
  explicit TrackerError(ErrorInfo info) : Error("TrackerError", std::move(info)) {}
};

// Numbers that belong to one name, for example the losses of several tasks.
using TrackedGroup = std::vector<std::pair<std::string, double>>;

// A number, a flag, a text, or a group of numbers.
class TrackedValue {
 public:
  using Variant = std::variant<double, int64_t, bool, std::string, TrackedGroup>;

  TrackedValue() = default;
  // NOLINTBEGIN(google-explicit-constructor): {"loss", 0.5}
  TrackedValue(bool flag) : value_(flag) {}
  template <std::floating_point T>
  TrackedValue(T number) : value_(static_cast<double>(number)) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) TrackedValue(T number) {
    // Unsigned numbers that do not fit stay as near as a double can be.
    if (std::cmp_greater(number, std::numeric_limits<int64_t>::max())) {
      value_ = static_cast<double>(number);
    } else {
      value_ = static_cast<int64_t>(number);
    }
  }
  TrackedValue(const char* text) : value_(std::string(text)) {}
  TrackedValue(std::string_view text) : value_(std::string(text)) {}
  TrackedValue(std::string text) : value_(std::move(text)) {}
  TrackedValue(TrackedGroup group) : value_(std::move(group)) {}
  // NOLINTEND(google-explicit-constructor)

  const Variant& get() const { return value_; }
  Variant& get() { return value_; }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const TrackedGroup* group() const { return std::get_if<TrackedGroup>(&value_); }
  // Nothing for texts and groups; a flag is 0 or 1.
  std::optional<double> number() const {
    if (const auto* real = std::get_if<double>(&value_)) return *real;
    if (const auto* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
    if (const auto* flag = std::get_if<bool>(&value_)) return *flag ? 1.0 : 0.0;
    return std::nullopt;
  }

 private:
  Variant value_;
};

struct NamedValue {
  std::string name{};
  TrackedValue value{};
};

// Hyperparameters of a run, in the order in which they are shown.
using TrackerConfig = std::vector<NamedValue>;

// Where in a run something was logged.
struct TrackedStep {
  std::optional<int64_t> step{};
  std::chrono::system_clock::time_point time{};
};

// Rows of pixels from the top, each of `channels` bytes: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
struct TrackedImage {
  std::string name{};
  int64_t height = 0;
  int64_t width = 0;
  int channels = 3;
  std::vector<uint8_t> pixels{};
};

struct TrackedTable {
  std::string name{};
  std::vector<std::string> columns{};
  std::vector<std::vector<TrackedValue>> rows{};
};

// How often values lie in (limits[i - 1], limits[i]].
struct TrackedHistogram {
  std::string name{};
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits{};
  std::vector<double> counts{};
};

// A picture as the bytes of a file: "png", "svg", "html", "json" (Plotly).
struct TrackedFigure {
  std::string name{};
  std::string extension = "png";
  std::string bytes{};
};

// A file or a folder that is kept with the run, under `artifact_path` there.
struct TrackedArtifact {
  std::filesystem::path path{};
  std::string artifact_path{};
};

// What init_trackers() was told, for trackers of one's own.
struct TrackerRun {
  std::string project{};
  std::filesystem::path logging_dir{};  // empty where none was given
  // The run goes on from a checkpoint: see GeneralTracker::continue_run().
  bool continues = false;
};

// A tracker. Derive from it to send the values of a run somewhere else, and name it in
// AcceleratorOptions::log_with. All calls come from one thread that is not the training's, one at a
// time; a call that takes long delays other trackers, never the training. An exception is logged,
// what was to be written is counted as lost, and the tracker is called again for what comes next.
class ACCELERATE_EXPORT GeneralTracker {
 public:
  virtual ~GeneralTracker();

  // By which get_tracker() finds it.
  virtual std::string name() const = 0;
  // init_trackers() throws where it has no directory for one that needs it.
  virtual bool requires_logging_directory() const { return false; }
  // Whether other processes than the main one have no use for it.
  virtual bool main_process_only() const { return true; }

  // Called first, and once.
  virtual void start(const TrackerRun& run);
  // Hyperparameters, once, if there are any.
  virtual void store_init_configuration(const TrackerConfig& config) = 0;
  virtual void log(std::span<const NamedValue> values, const TrackedStep& at) = 0;

  // False where this tracker has no use for such things, which is said once.
  virtual bool log_images(std::span<const TrackedImage> images, const TrackedStep& at);
  virtual bool log_table(const TrackedTable& table, const TrackedStep& at);
  virtual bool log_histogram(const TrackedHistogram& histogram, const TrackedStep& at);
  virtual bool log_figure(const TrackedFigure& figure, const TrackedStep& at);
  virtual bool log_artifact(const TrackedArtifact& artifact);

  // A checkpoint was loaded: of each name, what stands at the first step that is logged from now
  // on, or after it, belongs to a past that did not happen. No step may show twice.
  virtual void continue_run();
  // Hands what is buffered to the system or the server. Several times a
  // second.
  virtual void flush();
  // The same, at once: the process may be about to end. Unless it says otherwise, flush().
  virtual void flush_before_end();
  // Called last, and once.
  virtual void finish();
};

struct TensorBoardOptions {
  // After the name of each event file.
  std::string filename_suffix{};
  // TensorBoard hides what earlier files of the run have at this step and after it.
  std::optional<int64_t> purge_step{};
  // Scalars as 8-byte numbers of the newer kind, instead of the 4-byte ones that torch writes.
  bool double_precision = false;
};

struct CsvTrackerOptions {
  std::string file_name = "metrics.csv";
};

struct JsonLinesTrackerOptions {
  std::string file_name = "metrics.jsonl";
};

struct MlflowOptions {
  // "http://host:port" or a folder. Empty: MLFLOW_TRACKING_URI, else the folder "mlruns".
  std::string tracking_uri{};
  std::string experiment_name{};  // empty: MLFLOW_EXPERIMENT_NAME, else the project
  std::string logging_dir{};      // where artifacts of a new experiment go; empty: the default
  std::string run_id{};           // a run to go on with; empty: MLFLOW_RUN_ID, else a new run
  std::string run_name{};
  std::string description{};
  // Beside those of MLFLOW_TAGS, a JSON object.
  std::vector<std::pair<std::string, std::string>> tags{};
  bool nested_run = false;  // MLFLOW_NESTED_RUN: inside the run MLFLOW_RUN_ID
  // How long one answer of the server may take.
  std::chrono::milliseconds request_timeout{5000};
};

// Runs are written to a folder, which `wandb sync` sends. There is no connection while they train.
struct WandbOptions {
  std::filesystem::path dir{};  // in which "wandb" is made; empty: WANDB_DIR, else logging_dir
  std::string id{};             // of the run; empty: WANDB_RUN_ID, else a new one
  std::string name{};
  std::string entity{};
  std::string group{};
  std::string job_type{};
  std::string notes{};
  std::vector<std::string> tags{};
};

// Options of the trackers that `log_with` names, and of the queue before them.
struct TrackerInitOptions {
  TensorBoardOptions tensorboard{};
  CsvTrackerOptions csv{};
  JsonLinesTrackerOptions jsonl{};
  MlflowOptions mlflow{};
  WandbOptions wandb{};
  // Go on with what the folder of the project holds. Unset: if a checkpoint was loaded.
  std::optional<bool> resume{};
  // How many calls of log() may wait to be written. What comes while it is full is dropped, counted
  // and reported. A power of two is used, at least this.
  size_t queue_capacity = 8192;
  // The same for images, tables, histograms and figures, in bytes.
  size_t attachment_bytes = size_t{256} << 20U;
  // How long a value may wait before it is written, unless many come.
  std::chrono::milliseconds flush_interval{200};
  // Write what waits before a signal or a crash ends the process: SIGTERM, SIGINT, SIGHUP, SIGABRT,
  // SIGSEGV and their like. What handled the signal before still does.
  bool flush_on_signals = true;
};

// An entry of AcceleratorOptions::log_with: a name ("tensorboard", "csv", "jsonl", "mlflow",
// "wandb", or "all" of them) or a tracker of one's own.
class TrackerChoice {
 public:
  // NOLINTBEGIN(google-explicit-constructor): .log_with = {"tensorboard", my_tracker}
  TrackerChoice(const char* name) : name_(name) {}
  TrackerChoice(std::string name) : name_(std::move(name)) {}
  template <std::derived_from<GeneralTracker> T>
  TrackerChoice(std::shared_ptr<T> tracker) : tracker_(std::move(tracker)) {}
  // NOLINTEND(google-explicit-constructor)

  const std::string& name() const { return name_; }
  const std::shared_ptr<GeneralTracker>& tracker() const { return tracker_; }

 private:
  std::string name_;
  std::shared_ptr<GeneralTracker> tracker_;
};

}  // namespace accelerate
