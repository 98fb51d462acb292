// A run as a table.
#include "tracking/csv_tracker.h"

#include <gmock/gmock.h>

#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using test::at_step;
using test::lines_of;
using test::log_one;
using testing::ElementsAre;

using CsvFile = test::TrackedRun;

TEST_F(CsvFile, EveryCallIsARowUnderTheNamesOfItsValues) {
  CsvTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"loss", 0.5}, {"lr", 1e-3}});
  log_one(tracker, 2, {{"loss", 0.25}, {"losses", TrackedGroup{{"a", 1.0}}}});
  tracker.log(TrackerConfig{{"note", "say \"a, b\""}}, at_step({}));
  tracker.finish();
  EXPECT_THAT(
      lines_of(read("demo/metrics.csv")),
      ElementsAre("step,time,loss,lr,losses/a,note", "1,1700000001.000,0.5,0.001,,",
                  "2,1700000002.000,0.25,,1.0,", ",1700000000.000,,,,\"say \"\"a, b\"\"\""));
}

TEST_F(CsvFile, NewNamesAddColumnsToRowsThatAreWritten) {
  CsvTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"loss", 1}});
  tracker.flush();
  log_one(tracker, 2, {{"accuracy", 2}});
  tracker.flush();
  log_one(tracker, 3, {{"loss", 3}});
  tracker.finish();
  EXPECT_THAT(lines_of(read("demo/metrics.csv")),
              ElementsAre("step,time,loss,accuracy", "1,1700000001.000,1,", "2,1700000002.000,,2",
                          "3,1700000003.000,3,"));
}

TEST_F(CsvFile, ContinuedRunHasEachStepOfANameOnce) {
  for (const bool continues : {false, true}) {
    CsvTracker tracker({});
    tracker.start(run(continues));
    for (int64_t step = continues ? 3 : 1; step <= 4; ++step) {
      log_one(tracker, step, {{"loss", step + (continues ? 20 : 10)}});
      if (!continues) log_one(tracker, step, {{"first, try", "x"}});
    }
    tracker.finish();
  }
  EXPECT_THAT(
      lines_of(read("demo/metrics.csv")),
      ElementsAre("step,time,loss,\"first, try\"", "1,1700000001.000,11,", "1,1700000001.000,,x",
                  "2,1700000002.000,12,", "2,1700000002.000,,x", "3,1700000003.000,,x",
                  "4,1700000004.000,,x", "3,1700000003.000,23,", "4,1700000004.000,24,"));
}

TEST_F(CsvFile, CheckpointThatIsLoadedInTheMiddleTakesAwayWhatCameAfterIt) {
  CsvTracker tracker({});
  tracker.start(run());
  for (int64_t step = 1; step <= 3; ++step) log_one(tracker, step, {{"loss", step}});
  tracker.continue_run();
  log_one(tracker, 2, {{"loss", 22}});
  tracker.finish();
  EXPECT_THAT(lines_of(read("demo/metrics.csv")),
              ElementsAre("step,time,loss", "1,1700000001.000,1", "2,1700000002.000,22"));
}

TEST_F(CsvFile, RowThatACrashCutOffIsLeftOut) {
  std::filesystem::create_directories(folder_ / "demo");
  write("demo/metrics.csv", "step,time,loss\n1,1.000,1\n2,2.0");
  CsvTracker tracker({});
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 2, {{"loss", 2}});
  tracker.finish();
  EXPECT_THAT(lines_of(read("demo/metrics.csv")),
              ElementsAre("step,time,loss", "1,1.000,1", "2,1700000002.000,2"));
}

TEST_F(CsvFile, FilesOfOthersAndOfEarlierRunsArePutAside) {
  std::filesystem::create_directories(folder_ / "demo");
  write("demo/metrics.csv", "not ours\n");
  CsvTracker tracker({});
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 1, {{"loss", 1}, {"step", 5}});
  tracker.finish();
  EXPECT_EQ(read("demo/metrics.1.csv"), "not ours\n");
  EXPECT_THAT(lines_of(read("demo/metrics.csv")),
              ElementsAre("step,time,loss,step_", "1,1700000001.000,1,5"));
}

TEST_F(CsvFile, HyperparametersStandBesideIt) {
  CsvTracker tracker({.file_name = "numbers.csv"});
  tracker.start(run());
  tracker.store_init_configuration(
      {{"lr", 2e-5}, {"model", "bert"}, {"epochs", 3}, {"fp16", true}});
  tracker.finish();
  EXPECT_EQ(read("demo/hparams.yml"), "epochs: 3\nfp16: true\nlr: 2.0e-05\nmodel: bert\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "demo/numbers.csv"));
}

TEST_F(CsvFile, FolderThatCannotBeMadeIsAnErrorThatNamesIt) {
  write("demo", "a file stands where the folder should be");
  CsvTracker tracker({});
  const std::string text = test::error_text<TrackerError>([&] { tracker.start(run()); });
  EXPECT_THAT(text, testing::HasSubstr("TrackerError: the folder cannot be made"));
  EXPECT_THAT(text, testing::HasSubstr((folder_ / "demo").string()));
}

}  // namespace
}  // namespace accelerate::tracking
