// What the records of a run amount to.
#include "monitor/view/run_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "accelerate/errors.h"
#include "monitor/devices/process_sampler.h"
#include "monitor/scratch.h"
#include "monitor/server/view_json.h"
#include "monitor/terminal/top_screen.h"
#include "monitor/view/run_folder.h"
#include "run_record/record_writer.h"

namespace accelerate::monitor {
namespace {

namespace rec = run_record;
using rec::WriterKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kStart = 1'700'000'000'000'000;

rec::Begin begin_of(WriterKind writer, uint64_t index = 0, uint64_t pid = 10,
                    int64_t after_us = 0) {
  return {.writer = writer,
          .unix_us = kStart + after_us,
          .index = index,
          .world_size = 2,
          .pid = pid,
          .host = "here",
          .program = "train"};
}

TEST(Series, KeepsAllOfACurveInFewPoints) {
  Series series;
  for (int step = 0; step < 100'000; ++step) series.add(step, step * 0.1, step);
  EXPECT_LE(series.points().size(), Series::kMostPoints);
  EXPECT_GE(series.points().size(), Series::kMostPoints / 2);
  double sum = 0;
  double weight = 0;
  for (const Point& point : series.points()) {
    sum += point.value * point.weight;
    weight += point.weight;
  }
  EXPECT_EQ(weight, 100'000);
  EXPECT_DOUBLE_EQ(sum / weight, 49'999.5);
  EXPECT_EQ(series.points().front().least, 0);
  EXPECT_EQ(series.points().back().most, 99'999);
}

TEST(Series, StepsThatAreRepeatedReplaceTheFirstOnes) {
  Series series;
  for (int step = 0; step < 10; ++step) series.add(step, step, 1);
  const uint64_t before = series.generation();
  series.add(6, 20, 2);
  series.add(7, 21, 2);
  ASSERT_EQ(series.points().size(), 8U);
  EXPECT_EQ(series.points()[5].value, 1);
  EXPECT_EQ(series.points()[6].value, 2);
  EXPECT_NE(series.generation(), before);
}

TEST(Series, ValuesThatAreNoNumbersStayGaps) {
  Series series;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int step = 0; step < 10'000; ++step) series.add(step, step, step == 5'000 ? nan : 1.0);
  int gaps = 0;
  for (const Point& point : series.points()) gaps += std::isnan(point.value) ? 1 : 0;
  EXPECT_EQ(gaps, 1);
  Series all_gaps;
  for (int step = 0; step < 10'000; ++step) all_gaps.add(step, step, nan);
  EXPECT_LE(all_gaps.points().size(), Series::kMostPoints);
}

// The files of a run are read one after the other: the launcher's whole story comes before the
// first word of a rank.
TEST(RunView, TheEndOfARankHoldsWhateverOrderFilesAreReadIn) {
  RunView view;
  view.take(1, begin_of(WriterKind::kCommand));
  view.take(2, begin_of(WriterKind::kLauncher));
  view.take(2, rec::WorkerStarted{.time_us = 100, .rank = 0, .pid = 10});
  view.take(2, rec::WorkerEnded{.time_us = 900,
                                .rank = 0,
                                .fate = rec::WorkerFate::kFailed,
                                .how = "exited with status 3"});
  view.take(3, begin_of(WriterKind::kRank, 0, 10, 200));
  view.take(3, rec::Steps{.time_us = 400, .last = 5, .count = 5, .total_us = 50'000});
  view.take(3, rec::Now{.time_us = 500, .since_us = 450, .waits = true, .activity = "backward"});
  const RankView& rank = view.ranks().at(0);
  EXPECT_EQ(rank.state, RankState::kFailed);
  EXPECT_EQ(rank.ended, "exited with status 3");
  EXPECT_EQ(rank.steps, 5U);
  EXPECT_DOUBLE_EQ(rank.step_seconds, 0.01);
  EXPECT_EQ(view.state(), RunState::kRunning) << "the launcher has not ended yet";
  view.take(1, rec::End{.time_us = 1000, .exit_code = 3});
  EXPECT_EQ(view.state(), RunState::kFailed);
}

TEST(RunView, ARestartBeginsANewProcessAndKeepsTheCurves) {
  RunView view;
  view.take(1, begin_of(WriterKind::kRank, 0, 10));
  for (uint64_t step = 1; step <= 4; ++step) {
    view.take(1, rec::Steps{.time_us = step * 100, .last = step, .total_us = 90});
  }
  rec::Begin again = begin_of(WriterKind::kRank, 0, 20, 1'000'000);
  again.attempt = 1;
  view.take(2, again);
  view.take(2, rec::Steps{.time_us = 100, .last = 1, .total_us = 90});
  EXPECT_EQ(view.ranks().at(0).restarts, 1U);
  EXPECT_EQ(view.ranks().at(0).steps, 1U);
  ASSERT_EQ(view.step_time().points().size(), 5U);
  EXPECT_EQ(view.step_time().points().back().step, 5);
  // What the first process has left open says nothing of the second.
  view.take(1, rec::Now{.time_us = 500, .waits = true, .activity = "backward"});
  EXPECT_EQ(view.ranks().at(0).state, RankState::kRunning);
}

TEST(RunView, PartsOfAStepAreMeansOfItsSteps) {
  RunView view;
  view.take(1, begin_of(WriterKind::kRank));
  view.take(1, rec::Name{.id = 1, .text = "data"});
  view.take(1, rec::Steps{.time_us = 1000,
                          .last = 4,
                          .count = 4,
                          .total_us = 40'000,
                          .samples = 128,
                          .parts = {{1, 8'000}, {2, 5}}});
  const RankView& rank = view.ranks().at(0);
  EXPECT_THAT(rank.parts, ElementsAre(testing::Pair("data", testing::DoubleEq(0.002))));
  EXPECT_DOUBLE_EQ(rank.samples_per_second, 3200);
  EXPECT_DOUBLE_EQ(view.throughput().points().at(0).value, 6400) << "of two ranks";
  EXPECT_DOUBLE_EQ(view.parts().at("data").points().at(0).value, 2);
}

TEST(RunView, ValuesOfSeveralRanksAreKeptApart) {
  RunView view;
  for (const int rank : {0, 1}) {
    view.take(rank, begin_of(WriterKind::kRank, static_cast<uint64_t>(rank), 10));
    view.take(rank, rec::Name{.id = 1, .text = "loss"});
    view.take(rank, rec::Values{.step = 3, .values = {{1, 2.0 + rank}, {99, 1.0}}});
  }
  ASSERT_EQ(view.values().size(), 2U);
  EXPECT_EQ(view.values().at("loss").points().at(0).value, 2);
  EXPECT_EQ(view.values().at("loss [rank 1]").points().at(0).value, 3);
}

TEST(RunView, ASaveThatAProcessTookWithItHasFailed) {
  RunView view;
  view.take(1, begin_of(WriterKind::kRank));
  view.take(1, rec::Checkpoint{.time_us = 10, .is_open = true, .what = "save_state a"});
  EXPECT_EQ(view.ranks().at(0).state, RankState::kSaving);
  view.take(1, rec::Checkpoint{.time_us = 10, .took_us = 1'500'000, .what = "save_state a"});
  view.take(1, rec::Checkpoint{.time_us = 50, .is_open = true, .what = "save_state b"});
  view.take(2, begin_of(WriterKind::kLauncher));
  view.take(2, rec::WorkerEnded{.time_us = 90, .rank = 0, .fate = rec::WorkerFate::kFailed});
  ASSERT_EQ(view.checkpoints().size(), 2U);
  EXPECT_DOUBLE_EQ(view.checkpoints()[0].seconds, 1.5);
  EXPECT_FALSE(view.checkpoints()[0].failed);
  EXPECT_TRUE(view.checkpoints()[1].failed);
  EXPECT_FALSE(view.checkpoints()[1].is_open);
}

TEST(RunView, NonsenseTakesNoMemory) {
  RunView view;
  view.take(1, begin_of(WriterKind::kRank, std::numeric_limits<uint64_t>::max()));
  view.take(1, rec::Steps{.last = 1, .count = 0});
  for (uint64_t i = 0; i < 20'000; ++i) {
    view.take(1, rec::WorkerStarted{.rank = i});
    view.take(1, rec::Setting{.name = std::to_string(i)});
    view.take(1, rec::Device{.id = i, .index = i});
    view.take(1, rec::Checkpoint{.time_us = i, .what = "x"});
  }
  EXPECT_LE(view.ranks().size(), 4096U);
  EXPECT_LE(view.settings().size(), 2000U);
  EXPECT_LE(view.devices().size(), 4096U);
  EXPECT_LE(view.checkpoints().size(), RunView::kMostCheckpoints);
}

TEST(RunFolder, IsReadWhileItGrows) {
  const Scratch scratch;
  rec::RecordWriter command(scratch.path(), {.writer = WriterKind::kCommand, .program = "train"});
  RunFolder run(scratch.path());
  EXPECT_TRUE(run.poll());
  EXPECT_FALSE(run.poll());
  EXPECT_EQ(run.view().program(), "train");
  command.append(rec::Setting{.name = "num_processes", .value = "2", .source = "--num_processes"});
  command.flush();
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.view().settings().at(0).value, "2");
  EXPECT_FALSE(run.is_silent());
}

TEST(RunFolder, IsFoundByPathAndByName) {
  const Scratch scratch;
  setenv("XDG_STATE_HOME", scratch.path().c_str(), 1);
  EXPECT_THROW(find_run(""), UsageError);
  const std::filesystem::path home = scratch.path() / "accelerate" / "runs";
  { const rec::RecordWriter writer(home / "one", {}); }
  EXPECT_EQ(find_run("").filename(), "one");
  EXPECT_EQ(find_run("one"), home / "one");
  EXPECT_EQ(find_run((home / "one").string()), home / "one");
  try {
    find_run("two");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("no recorded run two"));
    EXPECT_THAT(error.where(), HasSubstr("accelerate/runs/two"));
  }
  unsetenv("XDG_STATE_HOME");
}

nlohmann::json state_of(const RunFolder& run, Told& told) {
  return nlohmann::json::parse(run_json(run, told));
}

TEST(RunJson, TellsEachPointOnceAndAgainOnlyWhereItChanged) {
  const Scratch scratch;
  rec::RecordWriter rank(scratch.path(), begin_of(WriterKind::kRank));
  const std::pair<std::string_view, double> values[] = {{"loss", 1.25}};
  rank.append_values(1, values);
  rank.append_values(2, values);
  rank.flush();
  RunFolder run(scratch.path());
  run.poll();
  Told told;
  const auto first = state_of(run, told);
  EXPECT_TRUE(first["whole"].get<bool>());
  EXPECT_EQ(first["curves"]["value:loss"]["from"], 0);
  EXPECT_EQ(first["curves"]["value:loss"]["points"].size(), 2U);
  EXPECT_EQ(first["curves"]["value:loss"]["points"][1][2], 1.25);
  EXPECT_TRUE(state_of(run, told)["curves"].empty());
  rank.append_values(3, values);
  rank.flush();
  run.poll();
  const auto more = state_of(run, told);
  EXPECT_FALSE(more["whole"].get<bool>());
  EXPECT_EQ(more["curves"]["value:loss"]["from"], 2);
  EXPECT_EQ(more["curves"]["value:loss"]["points"].size(), 1U);
  rank.append_values(2, values);  // the run went back
  rank.flush();
  run.poll();
  EXPECT_EQ(state_of(run, told)["curves"]["value:loss"]["from"], 0);
}

TEST(RunJson, TextsOfStrangersAreMadeUtf8) {
  const Scratch scratch;
  rec::RecordWriter rank(scratch.path(), begin_of(WriterKind::kRank));
  const std::pair<std::string_view, double> values[] = {
      {"\xff<script>\"", std::numeric_limits<double>::infinity()}};
  rank.append_values(1, values);
  rank.flush();
  RunFolder run(scratch.path());
  run.poll();
  Told told;
  const auto curves = state_of(run, told)["curves"];
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_THAT(curves.begin().key(), HasSubstr("<script>"));
  EXPECT_TRUE(curves.begin().value()["points"][0][2].is_null());
}

TEST(TopScreen, ShowsWhoWaitsAndFitsTheTerminal) {
  const Scratch scratch;
  rec::RecordWriter launcher(scratch.path(), begin_of(WriterKind::kLauncher));
  rec::RecordWriter rank(scratch.path(), begin_of(WriterKind::kRank, 1));
  rank.append(rec::Steps{.time_us = 90'000, .last = 7, .total_us = 90'000});
  rank.append(
      rec::Now{.time_us = 100'000, .since_us = 100'000, .waits = true, .activity = "backward"});
  launcher.append(rec::Lines{.time_us = 1, .rank = 1, .lines = {"\x1b[31mred", "last words"}});
  rank.flush();
  launcher.flush();
  RunFolder run(scratch.path());
  run.poll();
  const std::string screen = top_screen(run, {.columns = 120, .rows = 0}, false);
  EXPECT_THAT(screen, HasSubstr("   1  waiting        7      90 ms"));
  EXPECT_THAT(screen, HasSubstr("waits in backward for"));
  EXPECT_THAT(screen, HasSubstr("last words"));
  EXPECT_THAT(screen, HasSubstr("?[31mred"));
  EXPECT_THAT(screen, Not(HasSubstr("\x1b")));
  EXPECT_THAT(top_screen(run, {.columns = 120, .rows = 0}, true),
              HasSubstr("\x1b[33m   1  waiting"));

  const std::string small = top_screen(run, {.columns = 40, .rows = 5}, false);
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 4);
  for (size_t begin = 0; begin < small.size();) {
    const size_t end = std::min(small.find('\n', begin), small.size());
    EXPECT_LE(end - begin, 40U);
    begin = end + 1;
  }
}

TEST(TopScreen, CurvesBecomeBlocks) {
  Series series;
  for (int step = 0; step < 8; ++step) series.add(step, step, step);
  EXPECT_EQ(spark_line(series, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(spark_line(series, 2), "▁█");
  EXPECT_EQ(spark_line(Series(), 5), "");
}

TEST(ProcessSampler, SeesThisProcess) {
  ProcessSampler sampler;
  const auto first = sampler.process(getpid());
  ASSERT_TRUE(first);
  EXPECT_GT(first->memory_bytes, uint64_t{1} << 20);
  volatile uint64_t work = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < until) work = work + 1;
  const auto second = sampler.process(getpid());
  ASSERT_TRUE(second);
  EXPECT_GT(second->busy, 0);
  EXPECT_FALSE(sampler.process(999'999'999));
  EXPECT_GT(sampler.machine_memory_bytes(), uint64_t{1} << 27);
}

}  // namespace
}  // namespace accelerate::monitor
