// What is said to a tracking server. tests/interop talks to MLflow's own.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tracking/mlflow_tracker.h"
#include "unit/tracking/small_server.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using nlohmann::json;
using test::at_step;
using test::http_answer;
using test::log_one;
using test::SmallRequest;
using test::SmallServer;
using testing::HasSubstr;

class MlflowServerTest : public test::TrackedRun {
 protected:
  // As MLflow's server answers; `down` makes it refuse what is logged.
  std::string answer(const SmallRequest& request) {
    if (request.path.find("get-by-name") != std::string::npos) {
      return has_experiment_ ? http_answer(200, R"({"experiment":{"experiment_id":"7"}})")
                             : http_answer(404, R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})");
    }
    if (request.path.ends_with("experiments/create")) {
      return http_answer(200, R"({"experiment_id":"7"})");
    }
    if (request.path.ends_with("runs/create")) {
      return http_answer(
          200,
          R"({"run":{"info":{"run_id":"r1","artifact_uri":"mlflow-artifacts:/7/r1/artifacts"}}})");
    }
    if (request.path.find("runs/get?") != std::string::npos) {
      return http_answer(200, R"({"run":{"info":{"artifact_uri":"mlflow-artifacts:/7/r1/artifacts"},
        "data":{"metrics":[{"key":"loss","value":1,"timestamp":"5","step":"2"}]}}})");
    }
    if (request.path.ends_with("log-batch") && down_) {
      return http_answer(503, "the database is gone");
    }
    return http_answer(200, "{}");
  }

  std::vector<json> bodies(const std::string& call) {
    std::vector<json> found;
    for (const SmallRequest& request : server_.requests()) {
      if (request.path.ends_with(call)) found.push_back(json::parse(request.body));
    }
    return found;
  }

  bool has_experiment_ = true;
  std::atomic<bool> down_{false};
  SmallServer server_{[this](const SmallRequest& request) { return answer(request); }};
};

TEST_F(MlflowServerTest, RunIsMadeFilledAndEnded) {
  has_experiment_ = false;
  MlflowTracker tracker({.tracking_uri = server_.url(), .experiment_name = "é x", .run_name = "r"});
  tracker.start(run());
  tracker.store_init_configuration({{"lr", 0.1}});
  log_one(tracker, 1, {{"loss", 0.5}, {"bad", std::nan("")}});
  tracker.finish();
  EXPECT_EQ(bodies("experiments/create").at(0)["name"], "é x");
  const json created = bodies("runs/create").at(0);
  EXPECT_EQ(created["experiment_id"], "7");
  EXPECT_EQ(created["run_name"], "r");
  const json batch = bodies("log-batch").at(0);
  EXPECT_EQ(batch["run_id"], "r1");
  EXPECT_EQ(batch["params"], json::parse(R"([{"key":"lr","value":"0.1"}])"));
  EXPECT_EQ(batch["metrics"][0],
            json::parse(R"({"key":"loss","value":0.5,"timestamp":1700000001000,"step":1})"));
  EXPECT_EQ(batch["metrics"][1]["value"], "NaN");
  EXPECT_EQ(bodies("runs/update").at(0)["status"], "FINISHED");
}

TEST_F(MlflowServerTest, ManyMetricsAreSentAThousandAtATime) {
  MlflowTracker tracker({.tracking_uri = server_.url()});
  tracker.start(run());
  for (int64_t step = 0; step < 2500; ++step) log_one(tracker, step, {{"loss", 1.0}});
  tracker.finish();
  std::vector<size_t> sizes;
  for (const json& batch : bodies("log-batch")) sizes.push_back(batch["metrics"].size());
  EXPECT_EQ(sizes, (std::vector<size_t>{1000, 1000, 500}));
}

TEST_F(MlflowServerTest, WhatTheServerDoesNotTakeIsSentAgain) {
  MlflowTracker tracker({.tracking_uri = server_.url()});
  tracker.start(run());
  log_one(tracker, 1, {{"loss", 0.5}});
  down_ = true;
  EXPECT_THAT(test::error_text<TrackerError>([&] { tracker.flush_before_end(); }),
              HasSubstr("the tracking server refuses a request: the database is gone"));
  tracker.flush();  // not so soon after a failure
  EXPECT_EQ(bodies("log-batch").size(), 1U);
  down_ = false;
  log_one(tracker, 2, {{"loss", 0.25}});
  tracker.finish();
  ASSERT_EQ(bodies("log-batch").size(), 2U);
  EXPECT_EQ(bodies("log-batch")[1]["metrics"].size(), 2U);
}

TEST_F(MlflowServerTest, ContinuedRunSendsOnlyStepsThatTheServerDoesNotHave) {
  MlflowTracker tracker({.tracking_uri = server_.url(), .run_id = "r1"});
  tracker.start(run(/*continues=*/true));
  for (int64_t step = 1; step <= 4; ++step) log_one(tracker, step, {{"loss", step}, {"new", step}});
  tracker.finish();
  std::vector<std::string> sent;
  const json batch = bodies("log-batch").at(0);
  for (const json& metric : batch["metrics"]) {
    sent.push_back(metric["key"].get<std::string>() + metric["step"].dump());
  }
  EXPECT_EQ(sent, (std::vector<std::string>{"new1", "new2", "loss3", "new3", "loss4", "new4"}));
}

TEST_F(MlflowServerTest, ArtifactsGoThroughTheServer) {
  MlflowTracker tracker({.tracking_uri = server_.url()});
  tracker.start(run());
  tracker.log_figure({.name = "a b", .extension = "svg", .bytes = "<svg/>"}, at_step(3));
  std::filesystem::create_directories(folder_ / "model/inner");
  write("model/inner/w", "weights");
  tracker.log_artifact({.path = folder_ / "model", .artifact_path = "final"});
  const auto requests = server_.requests();
  const auto& figure = requests.at(requests.size() - 2);
  EXPECT_EQ(figure.method, "PUT");
  EXPECT_EQ(figure.path, "/api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/figures/a_b_3.svg");
  EXPECT_EQ(figure.body, "<svg/>");
  EXPECT_EQ(requests.back().path,
            "/api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/final/model/inner/w");
  EXPECT_EQ(requests.back().body, "weights");
}

TEST_F(MlflowServerTest, ServerThatIsSilentIsAnErrorOfTheStart) {
  std::atomic<bool> over{false};
  SmallServer silent([&](const SmallRequest&) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::string();
  });
  MlflowTracker tracker(
      {.tracking_uri = silent.url(), .request_timeout = std::chrono::milliseconds(50)});
  EXPECT_THAT(test::error_text<TrackerError>([&] { tracker.start(run()); }),
              HasSubstr("it took too long"));
  over = true;
}

TEST_F(MlflowServerTest, TokenOfTheEnvironmentIsSent) {
  ::setenv("MLFLOW_TRACKING_TOKEN", "secret", 1);
  MlflowTracker tracker({.tracking_uri = server_.url()});
  tracker.start(run());
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
  EXPECT_THAT(server_.requests().at(0).head, HasSubstr("\r\nAuthorization: Bearer secret"));
}

}  // namespace
}  // namespace accelerate::tracking
