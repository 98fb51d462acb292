// One progress bar in a terminal: drawn in place, as wide as the terminal is.
#include "unit/base/progress_terminal.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "accelerate/progress.h"
#include "unit/base/progress_processes.h"

namespace accelerate {
namespace {

using test::ProgressInTerminal;
using test::Rank;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

// The drawings on a screen, each without its '\r'.
std::vector<std::string> drawings(const std::string& screen) {
  std::vector<std::string> all;
  std::istringstream stream(screen);
  std::string before_the_first;
  std::getline(stream, before_the_first, '\r');
  for (std::string drawing; std::getline(stream, drawing, '\r');) all.push_back(drawing);
  return all;
}

TEST_F(ProgressInTerminal, IsRedrawnInPlaceAndEndsTheLineOnce) {
  for ([[maybe_unused]] const int item : progress(items_, Rank{}, {.description = "epoch 1"})) {
  }
  const std::string drawn = screen();
  EXPECT_THAT(drawn, StartsWith("\repoch 1:   0%|"));
  EXPECT_THAT(drawn, HasSubstr("\repoch 1: 100%|##"));
  EXPECT_THAT(drawn, EndsWith("]\n"));
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 1);
}

TEST_F(ProgressInTerminal, IsSilentOnOtherProcesses) {
  for ([[maybe_unused]] const int item : progress(items_, Rank{.local_main = false})) {
  }
  EXPECT_EQ(screen(), "");
}

TEST_F(ProgressInTerminal, ABarOnAnotherStreamLeavesItsLineThere) {
  std::ostringstream log_file;
  for ([[maybe_unused]] const int item : progress(items_, Rank{}, {.stream = &log_file})) {
  }
  EXPECT_THAT(log_file.str(), MatchesRegex("4/4 in [0-9:]+, [0-9.]+it/s\n"));
  EXPECT_EQ(screen(), "");
}

TEST_F(ProgressInTerminal, ManyFastIterationsAreNotAllDrawn) {
  std::vector<int> many(200'000);
  for ([[maybe_unused]] const int item : progress(many, Rank{})) {
  }
  // Ten a second: even a machine that stands still for minutes stays far below one an iteration.
  EXPECT_LT(drawings(screen()).size(), 10'000u);
}

TEST_F(ProgressInTerminal, FollowsTheWidthOfTheTerminalAndWipesTheRestOfALongerDrawing) {
  resize(30);
  auto bar = progress(items_, Rank{}, {.description = "a very long description"});
  auto pass = bar.begin();
  resize(20);
  while (pass != bar.end()) ++pass;
  const std::vector<std::string> drawn = drawings(screen());
  ASSERT_GE(drawn.size(), 2u);
  EXPECT_EQ(drawn[0], "a very long description:   0%");
  // The drawing after the first: a slow machine may have made more of them.
  EXPECT_EQ(drawn[1].substr(0, 29), "a very long descrip          ");
}

TEST_F(ProgressInTerminal, TakesTheWidthFromTheEnvironmentWhereTheTerminalHasNone) {
  resize(0);
  setenv("COLUMNS", "41", 1);
  items_.clear();
  for ([[maybe_unused]] const int item : progress(items_, Rank{})) FAIL();
  EXPECT_THAT(drawings(screen()),
              testing::Each(StartsWith("100%|#############| 0/0 [00:00<?, ?it/s]")));
}

}  // namespace
}  // namespace accelerate
