#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "accelerate/tracker.h"
#include "tracking/json_text.h"
#include "tracking/mlflow_store.h"
#include "tracking/output_file.h"
#include "tracking/run_folder.h"

namespace accelerate::tracking {
namespace {

using ServerJson = nlohmann::json;

constexpr size_t kMostMetrics = 1000;  // in one request
constexpr size_t kMostParameters = 100;

// Numbers of 64 bits are texts in the JSON of some servers.
int64_t as_integer(const ServerJson& value) {
  if (value.is_number()) return value.get<int64_t>();
  if (!value.is_string()) return 0;
  int64_t number = 0;
  const auto& text = value.get_ref<const std::string&>();
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string text_at(const ServerJson& json, const char* pointer) {
  const ServerJson::json_pointer place(pointer);
  if (!json.contains(place) || !json.at(place).is_string()) return {};
  return json.at(place).get<std::string>();
}

void append_pairs(std::string& json, std::string_view key,
                  std::span<const std::pair<std::string, std::string>> pairs) {
  append_json_key(json, key);
  json += '[';
  for (const auto& [name, value] : pairs) {
    if (json.back() != '[') json += ',';
    json += '{';
    append_json_member(json, "key", name);
    append_json_member(json, "value", value);
    json += '}';
  }
  json += ']';
}

class MlflowServer : public MlflowStore {
 public:
  MlflowServer(HttpServer server, std::chrono::milliseconds timeout)
      : server_(std::move(server)), timeout_(timeout) {}

  void open_run(const MlflowRunRequest& request) override {
    if (!request.run_id.empty()) {
      run_id_ = request.run_id;
      const ServerJson run = get("runs/get?run_id=" + url_encoded(run_id_, UrlPart::kQuery));
      artifact_uri_ = text_at(run, "/run/info/artifact_uri");
      if (run.contains(ServerJson::json_pointer("/run/data/metrics"))) {
        for (const ServerJson& metric : run["run"]["data"]["metrics"]) {
          const int64_t step = metric.contains("step") ? as_integer(metric["step"]) : 0;
          last_steps_[text_at(metric, "/key")] = step;
        }
      }
      return set_status(MlflowStatus::kRunning, 0);
    }
    std::string body = "{";
    append_json_member(body, "experiment_id", experiment_id(request));
    append_json_member(body, "run_name", request.run_name);
    append_json_member(body, "user_id", request.user);
    append_json_member(body, "start_time", request.start_ms);
    append_pairs(body, "tags", request.tags);
    const ServerJson run = post("runs/create", body + '}');
    run_id_ = text_at(run, "/run/info/run_id");
    artifact_uri_ = text_at(run, "/run/info/artifact_uri");
    if (run_id_.empty()) throw refusal("runs/create", "an answer without a run");
  }

  const std::string& run_id() const override { return run_id_; }
  std::map<std::string, int64_t> last_steps() override { return last_steps_; }

  void log(std::span<const MlflowMetric> metrics, const MlflowTexts& parameters) override {
    std::span<const std::pair<std::string, std::string>> rest(parameters);
    do {
      const auto part = metrics.first(std::min(metrics.size(), kMostMetrics));
      const auto texts = rest.first(std::min(rest.size(), kMostParameters));
      send(part, texts);
      metrics = metrics.subspan(part.size());
      rest = rest.subspan(texts.size());
    } while (!metrics.empty() || !rest.empty());
  }

  void store_artifact(const std::string& path, std::string_view bytes) override {
    constexpr std::string_view kProxied = "mlflow-artifacts:/";
    std::string uri = artifact_uri_;
    if (uri.starts_with(kProxied)) {
      uri.erase(0, kProxied.size());
      if (uri.starts_with('/')) uri.erase(0, uri.find('/', 1));  // the name of a server
      while (uri.starts_with('/')) uri.erase(0, 1);
      const std::string place =
          "/api/2.0/mlflow-artifacts/artifacts/" + url_encoded(uri + '/' + path, UrlPart::kPath);
      const auto answer =
          http_request(server_, "PUT", place, "application/octet-stream", bytes, timeout_);
      if (answer.status / 100 != 2) throw refusal(place, answer.body);
      return;
    }
    if (uri.starts_with("file://")) uri.erase(0, 7);
    if (!uri.starts_with('/')) {
      throw TrackerError({.what = "artifacts of this run go to " + artifact_uri_ +
                                  ", which only MLflow's own client can write",
                          .where = "http://" + server_.host + ":" + server_.port,
                          .hint = "start the server with --serve-artifacts"});
    }
    OutputFile file(std::filesystem::path(uri) / path, OutputFile::At::kStart);
    file.append(bytes);
    file.close();
  }

  void store_artifact_file(const std::string& path, const std::filesystem::path& file) override {
    if (!std::filesystem::is_directory(file)) return store_artifact(path, read_file(file));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(file)) {
      if (!entry.is_regular_file()) continue;
      const auto inside = entry.path().lexically_relative(file);
      store_artifact((std::filesystem::path(path) / inside).string(), read_file(entry.path()));
    }
  }

  void set_status(MlflowStatus status, int64_t end_ms) override {
    std::string body = "{";
    append_json_member(body, "run_id", run_id_);
    append_json_member(body, "status", status == MlflowStatus::kRunning ? "RUNNING" : "FINISHED");
    if (end_ms != 0) append_json_member(body, "end_time", end_ms);
    post("runs/update", body + '}');
  }

  bool can_take_away() const override { return false; }

 private:
  TrackerError refusal(const std::string& request, std::string_view answer) const {
    std::string message(answer.substr(0, 500));
    const ServerJson json = ServerJson::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && !text_at(json, "/message").empty()) {
      message = text_at(json, "/message");
    }
    return TrackerError({.what = "the tracking server refuses a request: " + message,
                         .where = "http://" + server_.host + ":" + server_.port + ": " + request,
                         .hint = "see the log of the server"});
  }

  HttpAnswer request(std::string_view method, const std::string& call, std::string_view body) {
    return http_request(server_, method, "/api/2.0/mlflow/" + call,
                        body.empty() ? "" : "application/json", body, timeout_);
  }
  ServerJson result(const std::string& call, const HttpAnswer& answer) const {
    if (answer.status / 100 != 2) throw refusal(call, answer.body);
    ServerJson json = ServerJson::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) throw refusal(call, "an answer that is not JSON");
    return json;
  }
  ServerJson get(const std::string& call) { return result(call, request("GET", call, {})); }
  ServerJson post(const std::string& call, const std::string& body) {
    return result(call, request("POST", call, body));
  }

  std::string experiment_id(const MlflowRunRequest& run) {
    const std::string by_name =
        "experiments/get-by-name?experiment_name=" + url_encoded(run.experiment, UrlPart::kQuery);
    const auto answer = request("GET", by_name, {});
    if (answer.status != 404) {
      return text_at(result(by_name, answer), "/experiment/experiment_id");
    }
    std::string body = "{";
    append_json_member(body, "name", run.experiment);
    if (!run.artifact_location.empty()) {
      append_json_member(body, "artifact_location", run.artifact_location);
    }
    return text_at(post("experiments/create", body + '}'), "/experiment_id");
  }

  void send(std::span<const MlflowMetric> metrics,
            std::span<const std::pair<std::string, std::string>> parameters) {
    std::string body = "{";
    append_json_member(body, "run_id", run_id_);
    append_json_key(body, "metrics");
    body += '[';
    for (const MlflowMetric& metric : metrics) {
      if (body.back() != '[') body += ',';
      body += '{';
      append_json_member(body, "key", mlflow_name(metric.name));
      append_json_member(body, "value", metric.value);
      append_json_member(body, "timestamp", metric.time_ms);
      append_json_member(body, "step", metric.step);
      body += '}';
    }
    body += ']';
    append_pairs(body, "params", parameters);
    post("runs/log-batch", body + '}');
  }

  const HttpServer server_;
  const std::chrono::milliseconds timeout_;
  std::string run_id_;
  std::string artifact_uri_;
  std::map<std::string, int64_t> last_steps_;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_server(HttpServer server, std::chrono::milliseconds timeout) {
  return std::make_unique<MlflowServer>(std::move(server), timeout);
}

}  // namespace accelerate::tracking
