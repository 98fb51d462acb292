// Steps and their parts, from the events of a rank.
#include "core/process/step_aggregator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace accelerate {
namespace {

constexpr int64_t kMs = 1'000'000;

Event at(int64_t time_ms, EventKind kind, std::string_view text = {}, int64_t number = 0) {
  Event event(kind, text);
  event.number = number;
  event.time_ns = 1'000'000'000 + time_ms * kMs;
  event.thread = 1;
  return event;
}

// A step of 100 ms that begins at `begin` ms: 10 of data, 40 of backward with an exchange of 30
// beside it, 20 of the optimizer.
std::optional<StepAggregator::Done> feed_step(StepAggregator& steps, int64_t begin,
                                              int64_t number) {
  Event wait = at(begin + 50, EventKind::kWaitBegin);
  wait.exchange = 1;
  for (const Event& event :
       {at(begin, EventKind::kSpanBegin, kDataSpan), at(begin + 10, EventKind::kSpanEnd, kDataSpan),
        at(begin + 40, EventKind::kSpanBegin, kBackwardSpan, 32), wait,
        at(begin + 80, EventKind::kWaitEnd), at(begin + 80, EventKind::kSpanEnd, kBackwardSpan),
        at(begin + 80, EventKind::kSpanBegin, kOptimizerSpan),
        at(begin + 90, EventKind::kStep, {}, number)}) {
    EXPECT_FALSE(steps.take(event));
  }
  return steps.take(at(begin + 100, EventKind::kSpanEnd, kOptimizerSpan));
}

TEST(StepAggregator, AStepIsSplitIntoItsParts) {
  StepAggregator steps;
  const auto done = feed_step(steps, 0, 1);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->steps.last, 1U);
  EXPECT_EQ(done->steps.count, 1U);
  EXPECT_EQ(done->steps.total_us, 100'000U);
  EXPECT_EQ(done->steps.samples, 32U);
  EXPECT_EQ(done->parts.at("data"), 10'000U);
  EXPECT_EQ(done->parts.at("backward"), 40'000U);
  EXPECT_EQ(done->parts.at("exchange"), 30'000U);
  EXPECT_EQ(done->parts.at("optimizer"), 20'000U);
}

TEST(StepAggregator, ForwardPassesArePartsAndEachStepIsARecordWhereThatIsAskedFor) {
  StepAggregator steps(StepAggregator::Records::kOfEachStep);
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t begin = 10 * step;
    EXPECT_FALSE(steps.take(at(begin, EventKind::kSpanBegin, kForwardSpan)));
    EXPECT_FALSE(steps.take(at(begin + 4, EventKind::kSpanEnd, kForwardSpan)));
    const auto done = steps.take(at(begin + 10, EventKind::kStep, {}, step + 1));
    ASSERT_TRUE(done);
    EXPECT_EQ(done->steps.total_us, 10'000U);
    EXPECT_EQ(done->parts.at("forward"), 4'000U);
  }
}

TEST(StepAggregator, ShortStepsBecomeOneRecord) {
  StepAggregator steps;
  for (int64_t step = 1; step <= 9; ++step) {
    EXPECT_FALSE(steps.take(at(10 * step - 10, EventKind::kSpanBegin, kDataSpan)));
    EXPECT_FALSE(steps.take(at(10 * step - 8, EventKind::kSpanEnd, kDataSpan)));
    EXPECT_FALSE(steps.take(at(10 * step, EventKind::kStep, {}, step)));
  }
  const auto done = steps.take(at(115, EventKind::kStep, {}, 10));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->steps.count, 10U);
  EXPECT_EQ(done->steps.last, 10U);
  EXPECT_EQ(done->steps.total_us, 115'000U);
  EXPECT_EQ(done->steps.longest_us, 25'000U);
  EXPECT_EQ(done->parts.at("data"), 18'000U);
}

TEST(StepAggregator, AStepThatIsTheLastIsNotKeptBack) {
  StepAggregator steps;
  EXPECT_FALSE(steps.take(at(0, EventKind::kSpanBegin, kBackwardSpan)));
  EXPECT_FALSE(steps.take(at(5, EventKind::kStep, {}, 1)));
  EXPECT_FALSE(steps.flush(1'000'000'000 + 50 * kMs));
  const auto done = steps.flush(1'000'000'000 + 101 * kMs);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->steps.total_us, 5'000U);
  EXPECT_FALSE(steps.flush(1'000'000'000 + 500 * kMs, true)) << "it was handed out twice";
}

TEST(StepAggregator, ExchangesThatOverlapCountOnce) {
  StepAggregator steps;
  Event wait = at(10, EventKind::kWaitBegin);
  wait.exchange = 1;
  EXPECT_FALSE(steps.take(at(0, EventKind::kSpanBegin, kBackwardSpan)));
  EXPECT_FALSE(steps.take(wait));
  wait.time_ns += 10 * kMs;
  EXPECT_FALSE(steps.take(wait));
  EXPECT_FALSE(steps.take(at(40, EventKind::kWaitEnd)));
  EXPECT_FALSE(steps.take(at(60, EventKind::kWaitEnd)));
  const auto done = steps.take(at(200, EventKind::kStep, {}, 1));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->parts.at("exchange"), 50'000U);
}

TEST(StepAggregator, WhatWasMissedLeavesNothingOpen) {
  StepAggregator steps;
  EXPECT_FALSE(steps.take(at(0, EventKind::kSpanBegin, kDataSpan)));
  steps.forget_open();
  EXPECT_FALSE(steps.take(at(90, EventKind::kSpanEnd, kDataSpan)));
  const auto done = steps.take(at(120, EventKind::kStep, {}, 1));
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->parts.empty());
}

}  // namespace
}  // namespace accelerate
