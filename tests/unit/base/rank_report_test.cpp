// What a rank says of itself, as text and back.
#include "base/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accelerate {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(RankReport, IsReadAsItWasWritten) {
  const RankReport report{
      .host = "node7",
      .pid = 4242,
      .steps = 17,
      .step_age = milliseconds(40),
      .waited = milliseconds(300),
      .log_time = milliseconds(900),
      .waits = {{.age = milliseconds(12'300), .text = "barrier", .group = "all", .sequence = 9}},
      .inside = {{.age = milliseconds(13'000), .text = "save_state"}},
      .groups = {{.name = "all/1.0",
                  .among = " among ranks 0 and 2",
                  .sequence = 3,
                  .finished = false,
                  .age = milliseconds(5),
                  .operation = "all_reduce Float[2, 3]"}},
      .log = {{.age = milliseconds(7),
               .what = "begins",
               .group = "all",
               .number = 9,
               .text = "barrier"}}};
  const RankReport read = RankReport::decode(report.encode());
  EXPECT_EQ(read.encode(), report.encode());
  EXPECT_EQ(read.host, "node7");
  EXPECT_EQ(read.pid, 4242);
  EXPECT_EQ(read.steps, 17);
  EXPECT_EQ(read.step_age, milliseconds(40));
  EXPECT_EQ(read.waited, milliseconds(300));
  EXPECT_EQ(read.log_time, milliseconds(900));
  ASSERT_EQ(read.waits.size(), 1U);
  EXPECT_EQ(read.waits[0].sequence, 9);
  EXPECT_EQ(read.waits[0].age, milliseconds(12'300));
  ASSERT_EQ(read.inside.size(), 1U);
  EXPECT_EQ(read.inside[0].text, "save_state");
  ASSERT_EQ(read.groups.size(), 1U);
  EXPECT_EQ(read.groups[0].among, " among ranks 0 and 2");
  EXPECT_FALSE(read.groups[0].finished);
  EXPECT_EQ(read.groups[0].operation, "all_reduce Float[2, 3]");
  EXPECT_EQ(log_text(read, 5), "     0.007 s  all #9 begins barrier\n");
}

TEST(RankReport, OfAnotherMachineBringsNoControlCharactersToATerminal) {
  RankReport report{.host = "a\x1b[31m\tb\nc"};
  EXPECT_EQ(RankReport::decode(report.encode()).host, "a [31m b c");
  EXPECT_EQ(RankReport::decode("process\tx\x07y\t1\n").host, "x y");
}

TEST(RankReport, ThatIsCutOffOrUnknownIsReadAsFarAsItGoes) {
  const RankReport none = RankReport::decode("");
  EXPECT_EQ(none.pid, 0);
  EXPECT_TRUE(none.log.empty());
  const RankReport cut = RankReport::decode("process\tnode7\nnews\tof\tlater\nwait\t12\tall");
  EXPECT_EQ(cut.host, "node7");
  EXPECT_EQ(cut.pid, 0);
  ASSERT_EQ(cut.waits.size(), 1U);
  EXPECT_EQ(cut.waits[0].group, "all");
  EXPECT_EQ(cut.waits[0].text, "");
}

TEST(RankReport, ShowsTheLastEntriesOfItsLog) {
  RankReport report;
  for (int i = 0; i < 5; ++i) report.log.push_back({.what = "ends", .number = i + 1});
  EXPECT_EQ(log_text(report, 2), "     0.000 s  #4 ends\n     0.000 s  #5 ends\n");
  EXPECT_EQ(waited_text(milliseconds(12'345)), "12.3 s");
  EXPECT_EQ(waited_text(milliseconds(250'000)), "4 min 10 s");
}

}  // namespace
}  // namespace accelerate
