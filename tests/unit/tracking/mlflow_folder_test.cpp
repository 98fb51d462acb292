// Runs of MLflow in a folder. tests/interop reads them with MLflow itself.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tracking/mlflow_tracker.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using test::at_step;
using test::lines_of;
using test::log_one;
using testing::ElementsAre;
using testing::HasSubstr;

class MlflowFolderTest : public test::TrackedRun {
 protected:
  void SetUp() override {
    TrackedRun::SetUp();
    for (const char* name : {"MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID",
                             "MLFLOW_TAGS", "MLFLOW_NESTED_RUN"}) {
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    ::unsetenv("MLFLOW_TAGS");
    ::unsetenv("MLFLOW_RUN_ID");
    TrackedRun::TearDown();
  }
  MlflowOptions options() const { return {.tracking_uri = (folder_ / "mlruns").string()}; }
  // The folders of all runs, of all experiments.
  std::vector<std::filesystem::path> runs() const {
    std::vector<std::filesystem::path> found;
    for (const auto& experiment : std::filesystem::directory_iterator(folder_ / "mlruns")) {
      for (const auto& run : std::filesystem::directory_iterator(experiment.path())) {
        if (run.is_directory()) found.push_back(run.path());
      }
    }
    return found;
  }
  std::string file(const std::filesystem::path& path) const {
    return read(path.lexically_relative(folder_).string());
  }
};

TEST_F(MlflowFolderTest, KeepsParametersMetricsTagsAndStatus) {
  ::setenv("MLFLOW_TAGS", R"({"team": "a", "n": 3})", 1);
  MlflowOptions chosen = options();
  chosen.run_name = "it's first";
  chosen.description = "what it is";
  chosen.tags = {{"kind", "test"}};
  MlflowTracker tracker(chosen);
  tracker.start(run());
  tracker.store_init_configuration({{"lr", 0.1}, {"model", "bert"}});
  log_one(tracker, 1, {{"loss", 0.5}, {"losses", TrackedGroup{{"a", 1.0}}}});
  log_one(tracker, 2, {{"loss", std::nan("")}, {"note", "hello"}});
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_THAT(file(runs()[0] / "meta.yaml"), HasSubstr("\nstatus: 1\n"));
  tracker.finish();
  const auto path = runs()[0];
  EXPECT_EQ(file(path / "params/lr"), "0.1");
  EXPECT_EQ(file(path / "params/model"), "bert");
  EXPECT_EQ(file(path / "metrics/loss"), "1700000001000 0.5 1\n1700000002000 nan 2\n");
  EXPECT_EQ(file(path / "metrics/losses/a"), "1700000001000 1.0 1\n");
  EXPECT_EQ(file(path / "tags/team"), "a");
  EXPECT_EQ(file(path / "tags/n"), "3");
  EXPECT_EQ(file(path / "tags/kind"), "test");
  EXPECT_EQ(file(path / "tags/mlflow.runName"), "it's first");
  EXPECT_EQ(file(path / "tags/mlflow.note.content"), "what it is");
  EXPECT_EQ(file(path / "artifacts/texts.txt"), "step 2: note: hello\n");
  const std::string meta = file(path / "meta.yaml");
  EXPECT_THAT(meta, HasSubstr("run_name: 'it''s first'\n"));
  EXPECT_THAT(meta, HasSubstr("\nstatus: 3\n"));
  EXPECT_THAT(file(path.parent_path() / "meta.yaml"), HasSubstr("name: 'demo'\n"));
}

TEST_F(MlflowFolderTest, RunsOfOneNameShareAnExperiment) {
  for (int i = 0; i < 2; ++i) {
    MlflowTracker tracker(options());
    tracker.start(run());
    tracker.finish();
  }
  ASSERT_EQ(runs().size(), 2U);
  EXPECT_EQ(runs()[0].parent_path(), runs()[1].parent_path());
}

TEST_F(MlflowFolderTest, ContinuedRunIsTheSameRunWithEachStepOnce) {
  for (const bool continues : {false, true}) {
    MlflowTracker tracker(options());
    tracker.start(run(continues));
    for (int64_t step = continues ? 2 : 1; step <= 3; ++step) {
      log_one(tracker, step, {{"loss", step + (continues ? 20 : 10)}});
    }
    tracker.finish();
  }
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_EQ(file(runs()[0] / "metrics/loss"),
            "1700000001000 11.0 1\n1700000002000 22.0 2\n1700000003000 23.0 3\n");
}

TEST_F(MlflowFolderTest, RunOfTheEnvironmentIsContinued) {
  {
    MlflowTracker tracker(options());
    tracker.start({.project = "demo", .logging_dir = {}});
    log_one(tracker, 1, {{"loss", 1}});
    tracker.finish();
  }
  ::setenv("MLFLOW_RUN_ID", runs()[0].filename().c_str(), 1);
  MlflowTracker tracker(options());
  tracker.start({.project = "other", .logging_dir = {}});
  log_one(tracker, 2, {{"loss", 2}});
  tracker.finish();
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_EQ(file(runs()[0] / "metrics/loss"), "1700000001000 1.0 1\n1700000002000 2.0 2\n");
  const std::string parent = runs()[0].filename();
  MlflowOptions nested_options = options();
  nested_options.nested_run = true;
  MlflowTracker nested(nested_options);
  nested.start({.project = "demo", .logging_dir = {}});
  ASSERT_EQ(runs().size(), 2U) << "a run inside the one of the environment";
  for (const auto& path : runs()) {
    if (path.filename() != parent) EXPECT_EQ(file(path / "tags/mlflow.parentRunId"), parent);
  }
  ::setenv("MLFLOW_RUN_ID", "nowhere", 1);
  MlflowTracker lost(options());
  EXPECT_THAT(test::error_text<TrackerError>([&] { lost.start(run()); }),
              HasSubstr("there is no run nowhere"));
}

TEST_F(MlflowFolderTest, NamesNeverLeaveTheRun) {
  MlflowTracker tracker(options());
  tracker.start(run());
  log_one(tracker, 1, {{"../../../evil", 1}, {"/abs", 2}, {"a%b", 3}});
  tracker.finish();
  const auto metrics = runs()[0] / "metrics";
  EXPECT_TRUE(std::filesystem::exists(metrics / "_/_/_/evil"));
  EXPECT_TRUE(std::filesystem::exists(metrics / "abs"));
  EXPECT_TRUE(std::filesystem::exists(metrics / "a_b"));
  EXPECT_EQ(mlflow_name(""), "_");
}

TEST_F(MlflowFolderTest, PicturesTablesAndFilesAreArtifacts) {
  MlflowTracker tracker(options());
  tracker.start(run());
  const TrackedImage image{.name = "sample", .height = 1, .width = 1, .pixels = {1, 2, 3}};
  tracker.log_images(std::span(&image, 1), at_step(1));
  tracker.log_table({.name = "t", .columns = {"a"}, .rows = {{1}}}, at_step({}));
  tracker.log_figure({.name = "f", .extension = "html", .bytes = "<p>"}, at_step(2));
  std::filesystem::create_directories(folder_ / "model/inner");
  write("model/inner/w.txt", "weights");
  tracker.log_artifact({.path = folder_ / "model", .artifact_path = "final"});
  tracker.finish();
  const auto artifacts = runs()[0] / "artifacts";
  EXPECT_TRUE(std::filesystem::exists(artifacts / "images/sample_1.png"));
  EXPECT_EQ(file(artifacts / "tables/t.json"), R"({"columns":["a"],"data":[[1]]})");
  EXPECT_EQ(file(artifacts / "figures/f_2.html"), "<p>");
  EXPECT_EQ(file(artifacts / "final/model/inner/w.txt"), "weights");
}

TEST_F(MlflowFolderTest, ParametersThatAreTooLongAreNamed) {
  MlflowTracker tracker(options());
  tracker.start(run());
  const std::string text = test::error_text<TrackerError>([&] {
    tracker.store_init_configuration({{"a", std::string(501, 'x')}, {"b", "fits"}});
  });
  EXPECT_THAT(text, HasSubstr("parameters of more than 500 bytes are left out: a"));
  tracker.finish();
  EXPECT_EQ(file(runs()[0] / "params/b"), "fits");
}

TEST_F(MlflowFolderTest, TagsOfTheEnvironmentMustBeAnObject) {
  ::setenv("MLFLOW_TAGS", "[1]", 1);
  MlflowTracker tracker(options());
  EXPECT_THAT(test::error_text<ConfigError>([&] { tracker.start(run()); }),
              HasSubstr("environment variable MLFLOW_TAGS"));
}

}  // namespace
}  // namespace accelerate::tracking
