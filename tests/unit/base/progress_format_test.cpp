// What a progress bar reads like.
#include <gmock/gmock.h>

#include <ranges>
#include <sstream>

#include "accelerate/progress.h"
#include "unit/base/progress_processes.h"

namespace accelerate {
namespace {

using detail::format_bar;
using detail::format_duration;
using detail::format_line;
using detail::format_rate;
using test::Rank;

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

TEST(ProgressBar, WithoutATotalCountsAndTellsTheRate) {
  const detail::ProgressState state{.description = "epoch 1",
                                    .postfix = "loss 0.3",
                                    .done = 197,
                                    .total = -1,
                                    .elapsed_seconds = 2};
  EXPECT_EQ(format_bar(state, 80, true), "epoch 1: 197it [00:02, 98.50it/s, loss 0.3]");
  EXPECT_EQ(format_bar(state, 14, true), "epoch 1: 197it");
  EXPECT_EQ(format_line(state), "epoch 1: 197 in 00:02, 98.50it/s, loss 0.3");
  std::ostringstream out;
  auto odd = std::views::iota(1, 10) | std::views::filter([](int i) { return i % 2 == 1; });
  for ([[maybe_unused]] int i : progress(odd, Rank{true}, {.stream = &out})) {
  }
  EXPECT_EQ(out.str().substr(0, 5), "5 in ");
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

}  // namespace
}  // namespace accelerate
