// Where runs of MLflow are kept: a folder or a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tracking/http_client.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

struct MlflowMetric {
  std::string name{};
  double value = 0;
  int64_t time_ms = 0;
  int64_t step = 0;
};

using MlflowTexts = std::vector<std::pair<std::string, std::string>>;  // parameters or tags

struct MlflowRunRequest {
  std::string experiment{};
  std::string artifact_location{};  // of a new experiment; empty: the store's own
  std::string run_id{};             // to go on with; empty: a new run
  std::string run_name{};
  std::string user{};
  MlflowTexts tags{};
  int64_t start_ms = 0;
};

enum class MlflowStatus { kRunning = 1, kFinished = 3 };

// Calls throw TrackerError if the store does not take something.
class MlflowStore {
 public:
  virtual ~MlflowStore() = default;
  // Once, before all other calls.
  virtual void open_run(const MlflowRunRequest& request) = 0;
  virtual const std::string& run_id() const = 0;
  // The last step of each metric that the run has.
  virtual std::map<std::string, int64_t> last_steps() = 0;
  virtual void log(std::span<const MlflowMetric> metrics, const MlflowTexts& parameters) = 0;
  virtual void store_artifact(const std::string& path, std::string_view bytes) = 0;
  virtual void store_artifact_file(const std::string& path, const std::filesystem::path& file) = 0;
  virtual void set_status(MlflowStatus status, int64_t end_ms) = 0;
  // Whether metrics can be taken away again.
  virtual bool can_take_away() const = 0;
  virtual void take_away(const StepCuts& /*cuts*/) {}
};

// A folder as MLflow's own file store writes it.
std::unique_ptr<MlflowStore> mlflow_folder(const std::filesystem::path& folder);
// A tracking server.
std::unique_ptr<MlflowStore> mlflow_server(HttpServer server, std::chrono::milliseconds timeout);

// A name of a metric, a parameter or a tag that every store takes: others of its characters become
// "_".
std::string mlflow_name(std::string_view name);

}  // namespace accelerate::tracking
