#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include "accelerate/tracker.h"
#include "base/random_id.h"
#include "tracking/json_text.h"
#include "tracking/mlflow_store.h"
#include "tracking/output_file.h"
#include "tracking/run_folder.h"

namespace accelerate::tracking {
namespace {

std::string yaml_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

// The value of a key at the top of a small YAML file, as MLflow writes them.
std::optional<std::string> yaml_field(std::string_view yaml, std::string_view key) {
  const std::string wanted = std::string(key) + ": ";
  while (!yaml.empty()) {
    const std::string_view line = yaml.substr(0, yaml.find('\n'));
    yaml.remove_prefix(std::min(yaml.size(), line.size() + 1));
    if (!line.starts_with(wanted)) continue;
    std::string_view value = line.substr(wanted.size());
    if (value.size() < 2 || value.front() != '\'' || value.back() != '\'') {
      return std::string(value);
    }
    value = value.substr(1, value.size() - 2);
    std::string text;
    for (size_t i = 0; i < value.size(); ++i) {
      text += value[i];
      if (value[i] == '\'' && i + 1 < value.size() && value[i + 1] == '\'') ++i;
    }
    return text;
  }
  return std::nullopt;
}

// A line of a metric's file: "<milliseconds> <value> <step>".
std::optional<int64_t> step_of_line(std::string_view line) {
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return std::nullopt;
  int64_t step = 0;
  const char* end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data() + space + 1, end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

class MlflowFolder : public MlflowStore {
 public:
  explicit MlflowFolder(const std::filesystem::path& folder)
      : folder_(std::filesystem::absolute(folder).lexically_normal()) {}

  void open_run(const MlflowRunRequest& request) override {
    request_ = request;
    make_folders(folder_);
    run_id_ = request.run_id;
    if (!run_id_.empty()) return find_run();
    const std::filesystem::path experiment = find_or_make_experiment();
    run_id_ = random_id() + random_id();
    run_ = experiment / run_id_;
    for (const char* part : {"metrics", "params", "tags"}) make_folders(run_ / part);
    artifacts_ = request.artifact_location.empty()
                     ? run_ / "artifacts"
                     : std::filesystem::path(artifact_root_) / run_id_ / "artifacts";
    make_folders(artifacts_);
    for (const auto& [name, value] : request.tags) store("tags", name, value);
    store("tags", "mlflow.runName", request.run_name);
    set_status(MlflowStatus::kRunning, 0);
  }

  const std::string& run_id() const override { return run_id_; }

  std::map<std::string, int64_t> last_steps() override {
    std::map<std::string, int64_t> last;
    const auto metrics = run_ / "metrics";
    std::error_code error;
    for (const auto& file : std::filesystem::recursive_directory_iterator(metrics, error)) {
      if (!file.is_regular_file()) continue;
      const std::string text = read_file(file.path());
      const std::string name = file.path().lexically_relative(metrics).string();
      for_each_line(text, [&](std::string_view line) {
        const auto step = step_of_line(line);
        if (step) last[name] = std::max(*step, last.try_emplace(name, *step).first->second);
      });
    }
    return last;
  }

  void log(std::span<const MlflowMetric> metrics, const MlflowTexts& parameters) override {
    std::map<std::string, std::string> lines;
    for (const MlflowMetric& metric : metrics) {
      lines[mlflow_name(metric.name)] += std::to_string(metric.time_ms) + ' ' +
                                         python_number(metric.value) + ' ' +
                                         std::to_string(metric.step) + '\n';
    }
    for (const auto& [name, text] : lines) {
      OutputFile file(run_ / "metrics" / name, OutputFile::At::kEnd);
      file.append(text);
      file.close();
    }
    for (const auto& [name, value] : parameters) store("params", name, value);
  }

  void store_artifact(const std::string& path, std::string_view bytes) override {
    OutputFile file(artifacts_ / path, OutputFile::At::kStart);
    file.append(bytes);
    file.close();
  }
  void store_artifact_file(const std::string& path, const std::filesystem::path& file) override {
    copy_artifact(file, artifacts_ / path);
  }

  void set_status(MlflowStatus status, int64_t end_ms) override {
    std::string yaml;
    const auto add = [&](std::string_view key, const std::string& value) {
      yaml += std::string(key) + ": " + value + '\n';
    };
    add("artifact_uri", "file://" + url_encoded(artifacts_.string(), UrlPart::kPath));
    add("end_time", end_ms == 0 ? "null" : std::to_string(end_ms));
    add("entry_point_name", "''");
    add("experiment_id", yaml_quoted(run_.parent_path().filename().string()));
    add("lifecycle_stage", "active");
    add("run_id", yaml_quoted(run_id_));
    add("run_name", yaml_quoted(request_.run_name));
    add("source_name", "''");
    add("source_type", "4");
    add("source_version", "''");
    add("start_time", std::to_string(request_.start_ms));
    add("status", std::to_string(static_cast<int>(status)));
    add("tags", "[]");
    add("user_id", yaml_quoted(request_.user));
    write_file(run_ / "meta.yaml", yaml);
  }

  bool can_take_away() const override { return true; }
  void take_away(const StepCuts& cuts) override {
    for (const auto& [name, first] : cuts) {
      const auto path = run_ / "metrics" / mlflow_name(name);
      const std::string text = read_file(path);
      std::string kept;
      for_each_line(text, [&](std::string_view line) {
        const auto step = step_of_line(line);
        if (!step || *step < first) (kept += line) += '\n';
      });
      if (kept != text) write_file(path, kept);
    }
  }

 private:
  template <class Call>
  static void for_each_line(std::string_view text, const Call& call) {
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      call(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
  }

  void store(const char* kind, const std::string& name, std::string_view value) {
    OutputFile file(run_ / kind / mlflow_name(name), OutputFile::At::kStart);
    file.append(value);
    file.close();
  }

  std::filesystem::path find_or_make_experiment() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
      const std::string yaml = read_file(entry.path() / "meta.yaml");
      if (yaml_field(yaml, "name") != request_.experiment) continue;
      if (yaml_field(yaml, "lifecycle_stage") == "deleted") continue;
      artifact_root_ = yaml_field(yaml, "artifact_location").value_or("");
      if (artifact_root_.starts_with("file://")) {
        artifact_root_ = url_decoded(artifact_root_.substr(7));
      }
      return entry.path();
    }
    // 18 digits, as MLflow makes them.
    constexpr uint64_t kSmallest = 100'000'000'000'000'000;
    const std::string id = std::to_string(kSmallest + random_bits() % (8 * kSmallest));
    const auto path = folder_ / id;
    artifact_root_ = request_.artifact_location.empty()
                         ? path.string()
                         : std::filesystem::absolute(request_.artifact_location).string();
    std::string yaml = "artifact_location: file://" + url_encoded(artifact_root_, UrlPart::kPath);
    yaml += "\ncreation_time: " + std::to_string(request_.start_ms);
    yaml += "\nexperiment_id: " + yaml_quoted(id);
    yaml += "\nlast_update_time: " + std::to_string(request_.start_ms);
    yaml += "\nlifecycle_stage: active\nname: " + yaml_quoted(request_.experiment) + '\n';
    write_file(path / "meta.yaml", yaml);
    return path;
  }

  void find_run() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
      const auto path = entry.path() / run_id_;
      const std::string yaml = read_file(path / "meta.yaml");
      if (yaml.empty()) continue;
      run_ = path;
      artifacts_ = path / "artifacts";
      if (const auto uri = yaml_field(yaml, "artifact_uri"); uri && uri->starts_with("file://")) {
        artifacts_ = url_decoded(uri->substr(7));
      }
      request_.run_name = yaml_field(yaml, "run_name").value_or(request_.run_name);
      const std::string start = yaml_field(yaml, "start_time").value_or("");
      std::from_chars(start.data(), start.data() + start.size(), request_.start_ms);
      return set_status(MlflowStatus::kRunning, 0);
    }
    throw TrackerError({.what = "there is no run " + run_id_,
                        .where = folder_.string(),
                        .hint = "leave MlflowOptions::run_id and MLFLOW_RUN_ID out for a new run"});
  }

  const std::filesystem::path folder_;
  MlflowRunRequest request_;
  std::string run_id_;
  std::string artifact_root_;  // of the experiment
  std::filesystem::path run_;
  std::filesystem::path artifacts_;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_folder(const std::filesystem::path& folder) {
  return std::make_unique<MlflowFolder>(folder);
}

std::string mlflow_name(std::string_view name) {
  std::string taken(name);
  for (char& c : taken) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("_-. :/").find(c) != std::string_view::npos;
    if (!is_plain) c = '_';
  }
  // No parts such as ".." or "": they would be other folders.
  std::string safe;
  for (const auto& part : std::filesystem::path(taken)) {
    const std::string text = part.string();
    if (text.empty() || text == "/") continue;
    if (!safe.empty()) safe += '/';
    safe += text == "." || text == ".." ? "_" : text;
  }
  return safe.empty() ? "_" : safe;
}

}  // namespace accelerate::tracking
