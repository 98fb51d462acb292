#include "tracking/mlflow_tracker.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/user_folders.h"
#include "tracking/json_text.h"
#include "tracking/output_file.h"
#include "tracking/png.h"
#include "tracking/run_folder.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostAtOnce = 10'000;     // metrics, before somebody asks for a flush
constexpr auto kBetweenRequests = 1000ms;  // to a server
constexpr auto kLongestPause = 30'000ms;

int64_t milliseconds_since_epoch(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string from_environment(const std::string& given, const char* variable) {
  return given.empty() ? environment_variable(variable).value_or("") : given;
}

std::string program_name() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : program.filename().string();
}

MlflowTexts tags_of_environment() {
  const std::string text = environment_variable("MLFLOW_TAGS").value_or("");
  if (text.empty()) return {};
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw ConfigError({.what = "the tags are not a JSON object",
                       .where = "environment variable MLFLOW_TAGS",
                       .hint = R"(write it as {"name": "value"})"});
  }
  MlflowTexts tags;
  for (const auto& [name, value] : json.items()) {
    tags.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return tags;
}

std::unique_ptr<MlflowStore> store_at(const std::string& uri, const std::string& where,
                                      std::chrono::milliseconds timeout) {
  constexpr std::string_view kFile = "file:";
  if (uri.starts_with(kFile)) {
    std::string path = uri.substr(kFile.size());
    if (path.starts_with("//")) path.erase(0, 2);
    return mlflow_folder(url_decoded(path));
  }
  if (uri.find("://") == std::string::npos) return mlflow_folder(expanded_path(uri));
  HttpServer server = parse_http_url(uri, where);
  const std::string user = environment_variable("MLFLOW_TRACKING_USERNAME").value_or("");
  const std::string token = environment_variable("MLFLOW_TRACKING_TOKEN").value_or("");
  if (!user.empty()) {
    const std::string password = environment_variable("MLFLOW_TRACKING_PASSWORD").value_or("");
    server.headers.emplace_back("Authorization", "Basic " + base64(user + ':' + password));
  } else if (!token.empty()) {
    server.headers.emplace_back("Authorization", "Bearer " + token);
  }
  return mlflow_server(std::move(server), timeout);
}

// Which run of which store it was, on disk.
struct RunNote {
  std::filesystem::path path;
  std::string uri;

  std::string run_id() const {
    const auto json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.value("tracking_uri", "") != uri) return {};
    return json.value("run_id", "");
  }
  void write(const std::string& run_id) const {
    write_file(path, json_object({{"tracking_uri", uri}, {"run_id", run_id}}) + '\n');
  }
};

}  // namespace

void MlflowTracker::start(const TrackerRun& run) {
  std::string uri = from_environment(options_.tracking_uri, "MLFLOW_TRACKING_URI");
  const std::string where = options_.tracking_uri.empty()
                                ? "environment variable MLFLOW_TRACKING_URI"
                                : "MlflowOptions::tracking_uri";
  if (uri.empty()) uri = "mlruns";
  store_ = store_at(uri, where, options_.request_timeout);

  MlflowRunRequest request{
      .experiment = from_environment(options_.experiment_name, "MLFLOW_EXPERIMENT_NAME"),
      .artifact_location = options_.logging_dir,
      .run_id = from_environment(options_.run_id, "MLFLOW_RUN_ID"),
      .run_name = options_.run_name,
      .user = environment_variable("USER").value_or(""),
      .tags = options_.tags,
      .start_ms = milliseconds_since_epoch(std::chrono::system_clock::now())};
  if (request.experiment.empty()) request.experiment = run.project;
  if (request.run_name.empty()) request.run_name = run.project;
  if (request.user.empty()) request.user = "unknown";
  const bool is_nested = options_.nested_run || environment_flag("MLFLOW_NESTED_RUN");
  if (is_nested && !request.run_id.empty() && options_.run_id.empty()) {
    request.tags.emplace_back("mlflow.parentRunId", request.run_id);
    request.run_id.clear();
  }
  const bool has_note = !run.logging_dir.empty();
  const RunNote note{.path = run.logging_dir / run.project / "mlflow_run.json", .uri = uri};
  if (has_note && run.continues && request.run_id.empty()) request.run_id = note.run_id();

  for (auto& tag : tags_of_environment()) request.tags.push_back(std::move(tag));
  if (!options_.description.empty()) {
    request.tags.emplace_back("mlflow.note.content", options_.description);
  }
  request.tags.emplace_back("mlflow.source.name", program_name());
  request.tags.emplace_back("mlflow.source.type", "LOCAL");
  request.tags.emplace_back("mlflow.user", request.user);
  const bool goes_on = !request.run_id.empty();
  store_->open_run(request);
  if (has_note) note.write(store_->run_id());
  if (!goes_on) return;
  for (auto& [metric, step] : store_->last_steps()) skipper_.set_last(metric, step);
  if (run.continues) continue_run();
}

void MlflowTracker::store_init_configuration(const TrackerConfig& config) {
  constexpr size_t kMostText = 500;  // of a parameter
  std::string too_long;
  for (const NamedValue& entry : config) {
    std::string text = plain_text(entry.value);
    if (text.size() > kMostText) {
      too_long += (too_long.empty() ? "" : ", ") + entry.name;
    } else {
      parameters_.emplace_back(mlflow_name(entry.name), std::move(text));
    }
  }
  if (too_long.empty()) return;
  throw TrackerError({.what = "parameters of more than 500 bytes are left out: " + too_long,
                      .where = "init_trackers",
                      .hint = "log long texts with log() or as an artifact"});
}

void MlflowTracker::add(const std::string& name, double value, const TrackedStep& at) {
  const std::string metric = mlflow_name(name);
  if (store_->can_take_away()) {
    cutter_.note(metric, at.step);
  } else if (!skipper_.note(metric, at.step)) {
    return;
  }
  if (metrics_.size() >= kMostWaiting) {
    throw TrackerError({.what = "values are lost: too many wait for the tracking server",
                        .where = "log",
                        .hint = "start the server again, or log less often"});
  }
  metrics_.push_back({.name = metric,
                      .value = value,
                      .time_ms = milliseconds_since_epoch(at.time),
                      .step = at.step.value_or(0)});
  if (metrics_.size() % kMostAtOnce == 0) flush();
}

void MlflowTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  for (const NamedValue& value : values) {
    if (const TrackedGroup* group = value.value.group()) {
      for (const auto& [member, number] : *group) add(value.name + '/' + member, number, at);
    } else if (const std::string* text = value.value.text()) {
      if (at.step) texts_ += "step " + std::to_string(*at.step) + ": ";
      texts_ += value.name + ": " + *text + '\n';
      has_new_texts_ = true;
    } else {
      add(value.name, *value.value.number(), at);
    }
  }
}

bool MlflowTracker::log_images(std::span<const TrackedImage> images, const TrackedStep& at) {
  for (const TrackedImage& image : images) {
    store_->store_artifact(media_name("images", image.name, at, "png").string(), png_of(image));
  }
  return true;
}

// As MLflow's log_table() writes them: what load_table() reads.
bool MlflowTracker::log_table(const TrackedTable& table, const TrackedStep& at) {
  store_->store_artifact(media_name("tables", table.name, at, "json").string(), table_json(table));
  return true;
}

bool MlflowTracker::log_figure(const TrackedFigure& figure, const TrackedStep& at) {
  store_->store_artifact(media_name("figures", figure.name, at, figure.extension).string(),
                         figure.bytes);
  return true;
}

bool MlflowTracker::log_artifact(const TrackedArtifact& artifact) {
  store_->store_artifact_file(artifact_path(artifact).string(), artifact.path);
  return true;
}

void MlflowTracker::continue_run() {
  cutter_.begin();
  skipper_.begin();
}

void MlflowTracker::send() {
  if (!cutter_.pending().empty()) {
    store_->take_away(cutter_.pending());
    cutter_.set_done();
  }
  if (!metrics_.empty() || !parameters_.empty()) {
    store_->log(metrics_, parameters_);
    metrics_.clear();
    parameters_.clear();
  }
  if (has_new_texts_) store_->store_artifact("texts.txt", texts_);
  has_new_texts_ = false;
}

void MlflowTracker::flush() {
  if (std::chrono::steady_clock::now() >= next_try_) flush_before_end();
}

void MlflowTracker::flush_before_end() {
  if (!store_) return;
  try {
    send();
    pause_ = 0ms;
    next_try_ = std::chrono::steady_clock::now() +
                (store_->can_take_away() ? std::chrono::milliseconds(0) : kBetweenRequests);
  } catch (const TrackerError&) {
    pause_ = std::clamp<std::chrono::milliseconds>(pause_ * 2, kBetweenRequests, kLongestPause);
    next_try_ = std::chrono::steady_clock::now() + pause_;
    throw;
  }
}

void MlflowTracker::finish() {
  if (!store_) return;
  flush_before_end();
  store_->set_status(MlflowStatus::kFinished,
                     milliseconds_since_epoch(std::chrono::system_clock::now()));
}

}  // namespace accelerate::tracking
