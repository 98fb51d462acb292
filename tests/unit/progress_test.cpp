#include "accelerate/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace accelerate {
namespace {

using detail::format_bar;
using detail::format_duration;
using detail::format_line;
using detail::format_rate;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

struct Rank {
  bool local_main = true;
  bool is_local_main_process() const { return local_main; }
};

TEST(ProgressFormat, DurationsShowHoursOnlyWhenThereAreAny) {
  EXPECT_EQ(format_duration(0), "00:00");
  EXPECT_EQ(format_duration(187.9), "03:07");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(360000), "100:00:00");
}

TEST(ProgressFormat, RatesBelowOneASecondTurnIntoSecondsEach) {
  EXPECT_EQ(format_rate(0, 3), "?it/s");
  EXPECT_EQ(format_rate(5, 0), "?it/s");
  EXPECT_EQ(format_rate(125, 2), "62.50it/s");
  EXPECT_EQ(format_rate(2, 5), "2.50s/it");
}

TEST(ProgressFormat, TheBarFillsTheColumnsExactly) {
  const detail::ProgressState state{.description = "epoch 1",
                                    .postfix = "loss 0.312",
                                    .done = 5,
                                    .total = 10,
                                    .elapsed_seconds = 2};
  EXPECT_EQ(format_bar(state, 66, false),
            "epoch 1:  50%|#####     | 5/10 [00:02<00:02, 2.50it/s, loss 0.312]");
  EXPECT_EQ(format_bar(state, 66, true),
            "epoch 1:  50%|█████     | 5/10 [00:02<00:02, 2.50it/s, loss 0.312]");
}

TEST(ProgressFormat, BlocksShowEighthsOfAColumn) {
  EXPECT_EQ(format_bar({.done = 5, .total = 16, .elapsed_seconds = 5}, 50, true),
            " 31%|████▋          | 5/16 [00:05<00:11, 1.00it/s]");
}

TEST(ProgressFormat, ANarrowTerminalLosesTheBarFirstThenTheEnd) {
  const detail::ProgressState state{
      .description = "ünï", .done = 5, .total = 10, .elapsed_seconds = 2};
  EXPECT_EQ(format_bar(state, 40, false), "ünï:  50%| 5/10 [00:02<00:02, 2.50it/s]");
  EXPECT_EQ(format_bar(state, 9, false), "ünï:  50%");
  EXPECT_EQ(format_bar(state, 2, false), "ün");
}

TEST(ProgressFormat, AnUnknownRemainderAndAnEmptyRangeAreNoDivisionByZero) {
  EXPECT_EQ(format_bar({.total = 10}, 36, false), "  0%|        | 0/10 [00:00<?, ?it/s]");
  EXPECT_EQ(format_bar({}, 30, false), "100%| 0/0 [00:00<?, ?it/s]");
}

TEST(ProgressFormat, LineBreaksInTheTextsStayOnTheLine) {
  EXPECT_EQ(
      format_line(
          {.description = "a\nb", .postfix = "c\rd", .done = 1, .total = 2, .elapsed_seconds = 1}),
      "a b: 1/2 in 00:01, 1.00it/s, c d");
  EXPECT_EQ(format_bar({.description = "a\nb", .postfix = "c\rd", .total = 2}, 44, false),
            "a b:   0%|       | 0/2 [00:00<?, ?it/s, c d]");
}

class ProgressRange : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ACCELERATE_TERMINAL", "0", 1);
    setenv("COLUMNS", "60", 1);
    setenv("LC_ALL", "C", 1);
  }
  void TearDown() override {
    for (const char* name : {"ACCELERATE_TERMINAL", "COLUMNS", "LC_ALL"}) unsetenv(name);
  }

  ProgressOptions options(std::string description = "epoch 1") {
    return {.description = std::move(description), .stream = &out_};
  }

  std::ostringstream out_;
  std::vector<int> items_{1, 2, 3, 4};
};

TEST_F(ProgressRange, YieldsTheElementsThemselves) {
  for (int& item : progress(items_, Rank{}, options())) item *= 10;
  EXPECT_THAT(items_, ElementsAre(10, 20, 30, 40));
}

TEST_F(ProgressRange, OwnsATemporaryRange) {
  int sum = 0;
  for (const int item : progress(std::vector<int>{1, 2, 3}, Rank{}, options())) sum += item;
  EXPECT_EQ(sum, 6);
}

TEST_F(ProgressRange, LeavesOneLineAPassWhereThereIsNoTerminal) {
  auto bar = progress(items_, Rank{}, options());
  for (int pass = 0; pass < 2; ++pass) {
    for (const int item : bar) bar.set_postfix("item " + std::to_string(item));
  }
  EXPECT_THAT(out_.str(), MatchesRegex("epoch 1: 4/4 in [0-9:]+, [0-9.]+it/s, item 4\n"
                                       "epoch 1: 4/4 in [0-9:]+, [0-9.]+it/s, item 4\n"));
}

TEST_F(ProgressRange, IsSilentOnOtherProcesses) {
  setenv("ACCELERATE_TERMINAL", "1", 1);
  auto bar = progress(items_, Rank{.local_main = false}, options());
  for (const int item : bar) bar.set_postfix(std::to_string(item));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressRange, ABreakShowsHowFarTheLoopCame) {
  for (const int item : progress(items_, Rank{}, options())) {
    if (item == 3) break;
  }
  EXPECT_THAT(out_.str(), MatchesRegex("epoch 1: 2/4 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressRange, AnExceptionShowsHowFarTheLoopCameOnceAndPasses) {
  const auto loop = [&] {
    for (const int item : progress(items_, Rank{}, options())) {
      if (item == 2) throw std::runtime_error("bad batch");
    }
  };
  EXPECT_THROW(loop(), std::runtime_error);
  EXPECT_THAT(out_.str(), MatchesRegex("epoch 1: 1/4 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressRange, AStreamThatFailsDoesNotEndTheLoop) {
  struct Full : std::streambuf {
    int_type overflow(int_type) override { return traits_type::eof(); }
  } full;
  std::ostream failing(&full);
  failing.exceptions(std::ios::badbit | std::ios::failbit);
  std::ostream absent(nullptr);
  int sum = 0;
  for (std::ostream* stream : {&failing, &absent}) {
    for (const int item : progress(items_, Rank{}, {.stream = stream})) sum += item;
  }
  EXPECT_EQ(sum, 20);
}

TEST_F(ProgressRange, AnIteratorThatIsMovedEndsItsPassOnce) {
  auto bar = progress(items_, Rank{}, options());
  {
    auto first = bar.begin();
    auto second = std::move(first);
    ++second;
  }
  EXPECT_THAT(out_.str(), MatchesRegex("epoch 1: 1/4 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressRange, AnEmptyRangeLeavesItsLineToo) {
  items_.clear();
  for ([[maybe_unused]] const int item : progress(items_, Rank{}, options())) FAIL();
  EXPECT_EQ(out_.str(), "epoch 1: 0/0 in 00:00, ?it/s\n");
}

TEST_F(ProgressRange, RedrawsInPlaceOnATerminalAndEndsTheLineOnce) {
  setenv("ACCELERATE_TERMINAL", "1", 1);
  for ([[maybe_unused]] const int item : progress(items_, Rank{}, options())) {
  }
  const std::string drawn = out_.str();
  EXPECT_THAT(drawn, StartsWith("\repoch 1:   0%|"));
  EXPECT_THAT(drawn, HasSubstr("\repoch 1: 100%|##"));
  EXPECT_THAT(drawn, EndsWith("]\n"));
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 1);
}

TEST_F(ProgressRange, ManyFastIterationsAreNotAllDrawn) {
  setenv("ACCELERATE_TERMINAL", "1", 1);
  std::vector<int> many(200'000);
  for ([[maybe_unused]] const int item : progress(many, Rank{}, options())) {
  }
  const std::string drawn = out_.str();
  // Ten a second: even a machine that stands still for minutes stays far below one an iteration.
  EXPECT_LT(std::count(drawn.begin(), drawn.end(), '\r'), 10'000);
}

TEST_F(ProgressRange, AShorterDrawingWipesTheRestOfALongerOne) {
  setenv("ACCELERATE_TERMINAL", "1", 1);
  setenv("COLUMNS", "30", 1);
  auto bar = progress(items_, Rank{}, options("a very long description"));
  auto pass = bar.begin();
  const std::string first = out_.str();
  setenv("COLUMNS", "20", 1);
  while (pass != bar.end()) ++pass;
  EXPECT_EQ(first.size(), 1u + 29u);
  // The drawing after the first: a slow machine may have made more of them.
  const std::string rest = out_.str().substr(first.size() + 1);
  EXPECT_EQ(rest.find_first_of("\r\n"), 29u);
}

}  // namespace
}  // namespace accelerate
