// Which steps of a profile are recorded.
#include <accelerate/profiler.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/error_of.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

// The rule as its text has it, written out step by step.
std::vector<ProfileAction> written_out(const ProfileSchedule& schedule, size_t steps) {
  std::vector<ProfileAction> cycles;
  for (int64_t cycle = 0; cycles.size() < steps + 10; ++cycle) {
    const bool is_left = schedule.repeat == 0 || cycle < schedule.repeat;
    if (!is_left) {
      cycles.resize(steps + 10, ProfileAction::kNone);
      break;
    }
    const bool waits = cycle > 0 || schedule.skip_first_wait == 0;
    for (int64_t i = 0; waits && i < schedule.wait; ++i) cycles.push_back(ProfileAction::kNone);
    for (int64_t i = 0; i < schedule.warmup; ++i) cycles.push_back(ProfileAction::kWarmup);
    for (int64_t i = 1; i < schedule.active; ++i) cycles.push_back(ProfileAction::kRecord);
    cycles.push_back(ProfileAction::kRecordAndSave);
  }
  std::vector<ProfileAction> all(static_cast<size_t>(schedule.skip_first), ProfileAction::kNone);
  all.insert(all.end(), cycles.begin(), cycles.end());
  all.resize(steps);
  return all;
}

TEST(ProfileSchedule, IsTheRuleOfTorchForAllSmallNumbers) {
  constexpr size_t kSteps = 40;
  int64_t tried = 0;
  for (int64_t code = 0; code < 4 * 3 * 3 * 4 * 4 * 2; ++code) {
    int64_t rest = code;
    const auto digit = [&](int64_t base) {
      const int64_t value = rest % base;
      rest /= base;
      return value;
    };
    const ProfileSchedule schedule{.wait = digit(4),
                                   .warmup = digit(3),
                                   .active = 1 + digit(3),
                                   .repeat = digit(4),
                                   .skip_first = digit(4),
                                   .skip_first_wait = digit(2)};
    std::vector<ProfileAction> actions;
    for (size_t step = 0; step < kSteps; ++step) {
      actions.push_back(action_at(schedule, static_cast<int64_t>(step)));
    }
    ASSERT_EQ(actions, written_out(schedule, kSteps)) << "schedule " << code;
    ++tried;
  }
  EXPECT_EQ(tried, 1152);
}

// The example of the documentation of torch.profiler: wait 1, warmup 1, active 3, repeat 1.
TEST(ProfileSchedule, RecordsThreeStepsAfterOneIdleAndOneWarmUpStep) {
  const ProfileSchedule schedule{.wait = 1, .warmup = 1, .active = 3, .repeat = 1};
  const std::vector<ProfileAction> expected{ProfileAction::kNone,          ProfileAction::kWarmup,
                                            ProfileAction::kRecord,        ProfileAction::kRecord,
                                            ProfileAction::kRecordAndSave, ProfileAction::kNone};
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_EQ(action_at(schedule, static_cast<int64_t>(step)), expected[step]) << step;
  }
}

TEST(ProfileSchedule, RefusesNumbersThatMakeNoCycle) {
  EXPECT_THAT(error_text<UsageError>([] { (void)action_at({.active = 0}, 0); }),
              HasSubstr("active is 0"));
  EXPECT_THAT(error_text<UsageError>([] { (void)action_at({.warmup = -1}, 0); }),
              HasSubstr("warmup is -1"));
  EXPECT_THAT(error_text<UsageError>([] { (void)action_at({.skip_first_wait = -2}, 0); }),
              HasSubstr("skip_first_wait is -2"));
}

TEST(ProfileActivity, HasTheNamesOfTheReference) {
  for (const char* name : {"cpu", "cuda", "xpu", "mtia", "hpu"}) {
    EXPECT_EQ(ProfileActivity(name).name(), name);
  }
  EXPECT_EQ(ProfileActivity("cuda"), ProfileActivity::kCuda);
  EXPECT_EQ(ProfileActivity("xpu").value(), ProfileActivity::kXpu);
  EXPECT_EQ(ProfileActivity("mtia").value(), ProfileActivity::kMtia);
  EXPECT_EQ(ProfileActivity("hpu").value(), ProfileActivity::kHpu);
  EXPECT_THAT(error_text<UsageError>([] { (void)ProfileActivity("cud"); }),
              testing::AllOf(HasSubstr("unknown activity \"cud\""), HasSubstr("\"cuda\"")));
}

}  // namespace
}  // namespace accelerate::test
