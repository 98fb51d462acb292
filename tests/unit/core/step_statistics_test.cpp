// Where steps went, from the events of a rank.
#include "core/profile/step_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace accelerate {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

Event event_at(int64_t time_ms, EventKind kind, std::string_view text = {}, int64_t number = 0) {
  Event event(kind, text);
  event.number = number;
  event.time_ns = 1'000'000'000 + time_ms * kMs;
  event.thread = 1;
  return event;
}

void take_span(StepStatistics& steps, std::string_view name, int64_t from_ms, int64_t to_ms) {
  steps.take(event_at(from_ms, EventKind::kSpanBegin, name));
  steps.take(event_at(to_ms, EventKind::kSpanEnd, name));
}

void take_mark(StepStatistics& steps, int64_t time_ms, int64_t number) {
  steps.take(event_at(time_ms, EventKind::kSpanBegin,
                      std::string(kStepMark) + std::to_string(number), number));
}

std::map<std::string, StepPartTimes> by_name(const StepTimes& times) {
  std::map<std::string, StepPartTimes> parts;
  for (const StepPartTimes& part : times.parts) parts[part.name] = part;
  return parts;
}

// A step of 100 ms from `begin_ms` on, with `data_ms` of waiting for data.
void take_step(StepStatistics& steps, int64_t begin_ms, int64_t data_ms) {
  take_span(steps, kDataSpan, begin_ms, begin_ms + data_ms);
  take_span(steps, kForwardSpan, begin_ms + 30, begin_ms + 50);
  take_span(steps, kBackwardSpan, begin_ms + 50, begin_ms + 80);
  steps.take(event_at(begin_ms + 90, EventKind::kSpanBegin, kOptimizerSpan));
  steps.take(event_at(begin_ms + 95, EventKind::kStep));
  steps.take(event_at(begin_ms + 100, EventKind::kSpanEnd, kOptimizerSpan));
}

TEST(StepStatistics, AddsUpThePartsOfEachStep) {
  StepStatistics steps(0);
  take_mark(steps, 0, 0);
  for (const int64_t step : {0, 1, 2}) take_step(steps, 100 * step, step == 2 ? 30 : 10);
  const StepTimes times = steps.times(3);
  EXPECT_EQ(times.rank, 3);
  EXPECT_EQ(times.steps, 3);
  EXPECT_DOUBLE_EQ(times.mean_us, 100'000);
  EXPECT_DOUBLE_EQ(times.median_us, 100'000);
  EXPECT_DOUBLE_EQ(times.longest_us, 100'000);
  auto parts = by_name(times);
  EXPECT_NEAR(parts["data"].mean_us, 50'000.0 / 3, 1);
  EXPECT_DOUBLE_EQ(parts["data"].median_us, 10'000);
  EXPECT_NEAR(parts["data"].share, 50.0 / 300, 1e-6);
  EXPECT_DOUBLE_EQ(parts["forward"].mean_us, 20'000);
  EXPECT_DOUBLE_EQ(parts["backward"].mean_us, 30'000);
  EXPECT_DOUBLE_EQ(parts["optimizer"].mean_us, 10'000);
  EXPECT_DOUBLE_EQ(parts["checkpoint"].mean_us, 0);
  EXPECT_DOUBLE_EQ(parts["rest"].median_us, 30'000);
}

TEST(StepStatistics, ForwardPassesInsideOfEachOtherCountOnce) {
  StepStatistics steps(0);
  take_mark(steps, 0, 0);
  steps.take(event_at(0, EventKind::kSpanBegin, kForwardSpan));
  take_span(steps, kForwardSpan, 10, 20);
  steps.take(event_at(40, EventKind::kSpanEnd, kForwardSpan));
  steps.take(event_at(100, EventKind::kStep));
  EXPECT_DOUBLE_EQ(by_name(steps.times(0))["forward"].mean_us, 40'000);
}

TEST(StepStatistics, LeavesOutTheFirstStepsThatTheScheduleSkips) {
  StepStatistics steps(2);
  take_mark(steps, 0, 0);
  take_step(steps, 0, 25);
  take_mark(steps, 100, 1);
  take_step(steps, 100, 25);
  take_mark(steps, 200, 2);
  take_step(steps, 200, 10);
  const StepTimes times = steps.times(0);
  EXPECT_EQ(times.steps, 1);
  EXPECT_DOUBLE_EQ(by_name(times)["data"].mean_us, 10'000);
}

TEST(StepStatistics, WithoutAnOptimizerTheMarksOfTheProfileAreTheSteps) {
  StepStatistics steps(0);
  take_mark(steps, 0, 0);
  take_span(steps, kForwardSpan, 10, 30);
  take_mark(steps, 40, 1);
  take_span(steps, kForwardSpan, 50, 60);
  take_mark(steps, 100, 2);
  const StepTimes times = steps.times(0);
  EXPECT_EQ(times.steps, 2);
  EXPECT_DOUBLE_EQ(times.mean_us, 50'000);
  EXPECT_DOUBLE_EQ(times.longest_us, 60'000);
  EXPECT_DOUBLE_EQ(by_name(times)["forward"].mean_us, 15'000);
}

TEST(StepTable, ShowsOneRankWithMeansMediansAndShares) {
  StepStatistics steps(0);
  take_mark(steps, 0, 0);
  for (const int64_t step : {0, 1}) take_step(steps, 100 * step, 10);
  EXPECT_EQ(step_table({steps.times(0)}),
            "rank 0: 2 steps of 100.00 ms (median 100.00 ms, longest 100.00 ms)\n"
            "  part           mean    median  share\n"
            "  data       10.00 ms  10.00 ms  10.0%\n"
            "  forward    20.00 ms  20.00 ms  20.0%\n"
            "  backward   30.00 ms  30.00 ms  30.0%\n"
            "  optimizer  10.00 ms  10.00 ms  10.0%\n"
            "  rest       30.00 ms  30.00 ms  30.0%\n");
}

TEST(StepTable, NamesTheSlowestOfSeveralRanksForEachPart) {
  StepStatistics fast(0);
  StepStatistics slow(0);
  take_mark(fast, 0, 0);
  take_mark(slow, 0, 0);
  take_step(fast, 0, 10);
  take_step(slow, 0, 25);
  const std::string table = step_table({fast.times(0), slow.times(1)});
  EXPECT_THAT(table, testing::StartsWith("1 step\n"));
  EXPECT_THAT(table, HasSubstr("  data             10.00 ms   25.00 ms  rank 1\n"));
  EXPECT_THAT(table, HasSubstr("  rest             30.00 ms   15.00 ms  rank 0\n"));
  EXPECT_EQ(step_table({}), "");
}

}  // namespace
}  // namespace accelerate
