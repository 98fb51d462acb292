// The warm-up schedules beyond what the recorded runs show.
#include "config/sharding/warmup_schedule.h"

#include <gmock/gmock.h>

#include <cmath>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

using ::testing::DoubleNear;

const std::vector<double> kInitial{0.5, 0.25};

TEST(WarmupSchedule, TheHighestRateIsThatOfTheFirstGroupWhereNobodyGivesOne) {
  const WarmupSchedule schedule{.warmup_steps = 4};
  EXPECT_EQ(warmup_rate(schedule, 0, kInitial, 1), 0.0);
  EXPECT_EQ(warmup_rate(schedule, 1, kInitial, 1), 0.0);  // the logarithm of 1
  EXPECT_THAT(warmup_rate(schedule, 2, kInitial, 1), DoubleNear(0.25, 1e-15));
  EXPECT_EQ(warmup_rate(schedule, 1000, kInitial, 1), 0.5);
}

TEST(WarmupSchedule, GroupsMayHaveRatesOfTheirOwn) {
  const WarmupSchedule schedule{
      .curve = WarmupCurve::kLinear, .warmup_steps = 4, .min_lr = {0.0, 0.1}, .max_lr = {1.0, 0.3}};
  EXPECT_EQ(warmup_rate(schedule, 0, kInitial, 1), 0.1);
  EXPECT_DOUBLE_EQ(warmup_rate(schedule, 3, kInitial, 0), 0.5);
  EXPECT_DOUBLE_EQ(warmup_rate(schedule, 3, kInitial, 1), 0.2);
  EXPECT_NO_THROW(check_warmup_groups(schedule, 2));
  EXPECT_THROW(check_warmup_groups(schedule, 3), ConfigError);
}

TEST(WarmupSchedule, AWarmUpOfOneStepTakesTwo) {
  const WarmupSchedule one{.curve = WarmupCurve::kLinear, .warmup_steps = 1, .max_lr = {1.0}};
  EXPECT_EQ(warmup_rate(one, 1, kInitial), 0.0);
  EXPECT_EQ(warmup_rate(one, 2, kInitial), 0.5);
  EXPECT_EQ(warmup_rate(one, 3, kInitial), 1.0);
}

TEST(WarmupSchedule, DecaysEndAndStayThere) {
  const WarmupSchedule linear{.kind = WarmupKind::kLinearDecay,
                              .warmup_steps = 2,
                              .total_steps = 6,
                              .min_lr = {0.1},
                              .max_lr = {0.5}};
  EXPECT_DOUBLE_EQ(warmup_rate(linear, 5, kInitial), 0.3);
  for (const int64_t updates : {7, 8, 100}) {
    EXPECT_DOUBLE_EQ(warmup_rate(linear, updates, kInitial), 0.1) << updates;
  }
  const WarmupSchedule cosine{.kind = WarmupKind::kCosineDecay,
                              .warmup_steps = 2,
                              .total_steps = 6,
                              .cosine_min_ratio = 0.2};
  for (const int64_t updates : {6, 7, 100}) {
    EXPECT_DOUBLE_EQ(warmup_rate(cosine, updates, kInitial, 1), 0.05) << updates;
  }
}

TEST(WarmupSchedule, AWarmUpLongerThanTheScheduleIsFollowedByItsEnd) {
  const WarmupSchedule linear{
      .kind = WarmupKind::kLinearDecay, .warmup_steps = 8, .total_steps = 4, .max_lr = {0.5}};
  EXPECT_EQ(warmup_rate(linear, 9, kInitial), 0.0);
  const WarmupSchedule cosine{
      .kind = WarmupKind::kCosineDecay, .warmup_steps = 8, .total_steps = 4};
  EXPECT_DOUBLE_EQ(warmup_rate(cosine, 9, kInitial), 0.5 * 0.0001);
}

}  // namespace
}  // namespace accelerate::config
