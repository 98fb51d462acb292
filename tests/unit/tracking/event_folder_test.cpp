// Event files: what a run that goes on leaves of an earlier try.
#include "tracking/event_folder.h"

#include <gmock/gmock.h>

#include "tracking/tensorboard_tracker.h"
#include "unit/tracking/event_file_reading.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using test::at_step;
using test::log_one;
using testing::ElementsAre;
using testing::IsEmpty;

class EventFiles : public test::TrackedRun {
 protected:
  // A second later than all before it, so that names sort in the order of writing.
  EventFileNames names() {
    ++second_;
    return {.now = [now = second_] { return now; }, .host = "host", .process = 7};
  }
  std::vector<std::string> scalars() const { return test::scalars_of_folder(folder_ / "demo"); }

  double second_ = 1700000000;
};

TEST_F(EventFiles, ContinuedRunTakesAwayWhatStandsAtItsFirstStepAndLater) {
  {
    TensorBoardTracker tracker({}, names());
    tracker.start(run());
    for (int64_t step = 1; step <= 4; ++step) log_one(tracker, step, {{"loss", 10.0 + step}});
    tracker.finish();
  }
  TensorBoardTracker tracker({}, names());
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 3, {{"loss", 23.0}});
  log_one(tracker, 4, {{"loss", 24.0}});
  log_one(tracker, 5, {{"loss", 25.0}});
  tracker.finish();
  EXPECT_THAT(scalars(),
              ElementsAre("loss@1=11", "loss@2=12", "loss@3=23", "loss@4=24", "loss@5=25"));
}

TEST_F(EventFiles, EachNameIsCutAtItsOwnFirstStep) {
  {
    TensorBoardTracker tracker({}, names());
    tracker.start(run());
    for (int64_t step : {100, 200, 300}) log_one(tracker, step, {{"loss", 1.0}});
    for (int64_t epoch : {1, 2, 3}) log_one(tracker, epoch, {{"accuracy", 0.5}});
    tracker.finish();
  }
  TensorBoardTracker tracker({}, names());
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 3, {{"accuracy", 0.75}});
  log_one(tracker, 300, {{"loss", 2.0}});
  tracker.finish();
  EXPECT_THAT(scalars(), ElementsAre("loss@100=1", "loss@200=1", "accuracy@1=0.5", "accuracy@2=0.5",
                                     "accuracy@3=0.75", "loss@300=2"));
}

TEST_F(EventFiles, CheckpointThatIsLoadedInTheMiddleTakesAwayWhatCameAfterIt) {
  TensorBoardTracker tracker({}, names());
  tracker.start(run());
  for (int64_t step = 1; step <= 3; ++step) log_one(tracker, step, {{"loss", 10.0 + step}});
  tracker.continue_run();
  log_one(tracker, 2, {{"loss", 22.0}});
  tracker.finish();
  EXPECT_THAT(scalars(), ElementsAre("loss@1=11", "loss@2=22"));
}

TEST_F(EventFiles, NewRunInTheSameFolderLeavesEarlierFilesAlone) {
  for (int round = 0; round < 2; ++round) {
    TensorBoardTracker tracker({}, names());
    tracker.start(run());
    log_one(tracker, 1, {{"loss", 1.0 + round}});
    tracker.finish();
  }
  EXPECT_THAT(scalars(), ElementsAre("loss@1=1", "loss@1=2"));
}

TEST_F(EventFiles, RunsOfOneProcessInOneSecondHaveFilesOfTheirOwn) {
  for (const bool continues : {false, true}) {
    TensorBoardTracker tracker({}, {.now = [] { return 1700000000.0; }, .host = "h", .process = 1});
    tracker.start(run(continues));
    for (int64_t step = continues ? 2 : 1; step <= 2; ++step)
      log_one(tracker, step, {{"loss", 1.0}});
    tracker.finish();
  }
  EXPECT_THAT(scalars(), ElementsAre("loss@1=1", "loss@2=1"));
}

TEST_F(EventFiles, GroupsTextsAndImagesAreCutToo) {
  const TrackedImage image{.name = "sample", .height = 1, .width = 1, .pixels = {1, 2, 3}};
  for (const bool continues : {false, true}) {
    TensorBoardTracker tracker({}, names());
    tracker.start(run(continues));
    for (int64_t step = continues ? 2 : 1; step <= 2; ++step) {
      log_one(tracker, step, {{"losses", TrackedGroup{{"a", 1.0}}}, {"note", "text"}});
      tracker.log_images(std::span(&image, 1), at_step(step));
    }
    tracker.finish();
  }
  std::map<std::string, int> seen;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "demo")) {
    if (!entry.is_regular_file()) continue;
    for (const auto& value : test::values_of_file(entry.path())) {
      ++seen[value.tag + "@" + std::to_string(value.step)];
    }
  }
  const std::map<std::string, int> once = {
      {"losses@1", 1}, {"losses@2", 1}, {"note/text_summary@1", 1}, {"note/text_summary@2", 1},
      {"sample@1", 1}, {"sample@2", 1}};
  EXPECT_EQ(seen, once);
}

TEST_F(EventFiles, EndOfAFileThatACrashCutOffIsLeftOut) {
  std::filesystem::path file;
  {
    EventFileNames own = names();
    EventFolder folder(folder_ / "demo", own);
    for (int64_t step = 1; step <= 3; ++step) {
      folder.add(scalar_event({.wall_time = 1, .step = step}, "loss", static_cast<double>(step)));
    }
    folder.flush();
    file = std::filesystem::directory_iterator(folder_ / "demo")->path();
  }
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 3);
  TensorBoardTracker tracker({}, names());
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 2, {{"loss", 22.0}});
  tracker.finish();
  EXPECT_THAT(scalars(), ElementsAre("loss@1=1", "loss@2=22"));
}

TEST_F(EventFiles, PurgeStepIsAnEventOfItsOwn) {
  TensorBoardTracker tracker({.purge_step = 7}, names());
  tracker.start(run());
  tracker.finish();
  const auto file = std::filesystem::directory_iterator(folder_ / "demo")->path();
  const auto events = test::events_of_file(file);
  ASSERT_EQ(events.size(), 2U);
  const test::Message event(events[1]);
  EXPECT_EQ(event.number(2), 7U);
  EXPECT_EQ(event.message(7).number(1), 1U) << "a session starts";
}

TEST_F(EventFiles, DamagedRecordsAreNotRead) {
  std::string file;
  append_record(file, version_event(1));
  const size_t first = file.size();
  append_record(file, scalar_event({.wall_time = 1, .step = 1}, "loss", 1));
  for (size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    RecordReader reader(damaged);
    size_t records = 0;
    while (reader.next()) ++records;
    EXPECT_EQ(records, at < first ? 0U : 1U) << "byte " << at;
  }
}

TEST_F(EventFiles, HistogramsAndTablesCanBeReadBack) {
  TensorBoardTracker tracker({.filename_suffix = ".end"}, names());
  tracker.start(run());
  tracker.log_histogram({.name = "weights",
                         .min = -1,
                         .max = 2,
                         .count = 3,
                         .sum = 1.5,
                         .sum_of_squares = 5.25,
                         .limits = {-0.5, 3},
                         .counts = {1, 2}},
                        at_step(5));
  tracker.log_table(
      {.name = "samples", .columns = {"text", "score"}, .rows = {{"a|b", 0.5}, {"c", int64_t{2}}}},
      at_step(6));
  tracker.finish();
  const auto file = std::filesystem::directory_iterator(folder_ / "demo")->path();
  EXPECT_TRUE(file.string().ends_with(".7.0.end")) << file;
  const auto values = test::values_of_file(file);
  ASSERT_EQ(values.size(), 2U);
  const test::Message histogram = values[0].value.message(5);
  EXPECT_EQ(values[0].step, 5);
  EXPECT_EQ(histogram.real(1), -1);
  EXPECT_EQ(histogram.real(2), 2);
  EXPECT_EQ(histogram.real(3), 3);
  EXPECT_EQ(histogram.real(4), 1.5);
  EXPECT_EQ(histogram.real(5), 5.25);
  EXPECT_EQ(test::number_at<double>(histogram.text(6), 8), 3);
  EXPECT_EQ(test::number_at<double>(histogram.text(7), 8), 2);
  EXPECT_EQ(values[1].value.message(8).text(8),
            "| text | score |\n| --- | --- |\n| a\\|b | 0.5 |\n| c | 2 |");
}

}  // namespace
}  // namespace accelerate::tracking
