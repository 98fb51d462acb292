// Several progress bars in one terminal, and what is written beside them.
#include <accelerate/log.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string>
#include <vector>

#include "accelerate/progress.h"
#include "base/bar_screen.h"
#include "unit/base/progress_processes.h"
#include "unit/base/progress_terminal.h"

namespace accelerate {
namespace {

using test::Rank;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

using BarsInTerminal = test::ProgressInTerminal;

// The lines that a terminal in its usual mode, where a line break also returns to the first column,
// shows after it was sent `bytes`, each without blanks at its end.
std::vector<std::string> shown(const std::string& bytes) {
  std::vector<std::string> lines{""};
  size_t row = 0;
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      column = 0;
      if (++row == lines.size()) lines.emplace_back();
    } else if (bytes.compare(i, 3, "\x1b[J") == 0) {
      lines.resize(row + 1);
      lines[row].resize(std::min(column, lines[row].size()));
      i += 2;
    } else if (bytes.compare(i, 2, "\x1b[") == 0) {
      size_t up = 0;
      for (i += 2; std::isdigit(static_cast<unsigned char>(bytes[i])) != 0; ++i) {
        up = 10 * up + static_cast<size_t>(bytes[i] - '0');
      }
      EXPECT_EQ(bytes[i], 'A');
      EXPECT_LE(up, row);
      row -= up;
    } else {
      if (lines[row].size() <= column) lines[row].resize(column + 1, ' ');
      lines[row][column++] = bytes[i];
    }
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

// Before the first bar was closed while another one was there.
std::string before_a_bar_moved(const std::string& screen) {
  return screen.substr(0, screen.find("\x1b[J"));
}

TEST_F(BarsInTerminal, OneInsideAnotherIsDrawnBelowItAndMovesAboveItAtItsEnd) {
  for (const int epoch : progress(std::vector<int>{1, 2}, Rank{}, {.description = "epochs"})) {
    for ([[maybe_unused]] const int item :
         progress(items_, Rank{}, {.description = "batches " + std::to_string(epoch)})) {
    }
  }
  const std::string drawn = screen();
  EXPECT_THAT(
      shown(before_a_bar_moved(drawn)),
      ElementsAre(MatchesRegex("epochs:   0%.* 0/2 .*"), MatchesRegex("batches 1: 100%.* 4/4 .*")));
  EXPECT_THAT(shown(drawn), ElementsAre(MatchesRegex("batches 1: 100%.* 4/4 .*"),
                                        MatchesRegex("batches 2: 100%.* 4/4 .*"),
                                        MatchesRegex("epochs: 100%.* 2/2 .*")));
  EXPECT_THAT(drawn, EndsWith("\n"));
}

TEST_F(BarsInTerminal, ThreeAtATimeKeepTheirLinesWhicheverIsRedrawn) {
  ProgressBar first(10, Rank{}, {.description = "a"});
  ProgressBar second(10, Rank{}, {.description = "b"});
  ProgressBar third(10, Rank{}, {.description = "c"});
  first.update(1);
  second.update(2);
  third.update(3);
  second.close();
  first.close();  // the outer one before the inner one
  third.close();
  const std::string drawn = screen();
  EXPECT_THAT(shown(before_a_bar_moved(drawn)),
              ElementsAre(StartsWith("a: "), StartsWith("b:  20%"), StartsWith("c: ")));
  EXPECT_THAT(shown(drawn),
              ElementsAre(StartsWith("b:  20%"), StartsWith("a:  10%"), StartsWith("c:  30%")));
}

TEST_F(BarsInTerminal, OneThatIsNotToStayIsWipedOff) {
  for ([[maybe_unused]] const int epoch :
       progress(std::vector<int>{1, 2}, Rank{}, {.description = "epochs"})) {
    for ([[maybe_unused]] const int item :
         progress(items_, Rank{}, {.description = "batches", .leave = false})) {
    }
  }
  {
    ProgressBar alone(10, Rank{}, {.description = "alone", .leave = false});
    alone.update(3);
  }
  const std::string drawn = screen();
  EXPECT_THAT(drawn, HasSubstr("batches: 100%"));
  EXPECT_THAT(drawn, HasSubstr("alone:  30%"));
  EXPECT_THAT(shown(drawn), ElementsAre(StartsWith("epochs: 100%")));
}

TEST_F(BarsInTerminal, LinesOfTheLogComeAboveTheBars) {
  {
    ProgressBar outer(10, Rank{}, {.description = "outer"});
    ProgressBar inner(10, Rank{}, {.description = "inner"});
    log(LogLevel::kError, "the first");
    inner.update(5);
    log(LogLevel::kError, "the second");
  }
  log(LogLevel::kError, "the third");
  EXPECT_THAT(shown(screen()),
              ElementsAre("error: the first", "error: the second", StartsWith("inner:  50%"),
                          StartsWith("outer:   0%"), "error: the third"));
}

TEST_F(BarsInTerminal, WhatTheShellPrintsAfterCtrlCComesBelowThem) {
  BarScreen& screen_of_bars = BarScreen::instance();
  const auto outer = screen_of_bars.open();
  const auto inner = screen_of_bars.open();
  screen_of_bars.draw(outer, "epochs: 0%");
  screen_of_bars.draw(inner, "batches: 50%");
  screen_of_bars.draw(outer, "epochs: 1%");
  // Here the process would end; the terminal echoes the key, and the shell goes on in a new line.
  ASSERT_EQ(write(STDERR_FILENO, "^C\n$ ls\n", 8), 8);
  screen_of_bars.close(inner, false);
  screen_of_bars.close(outer, false);
  const std::string drawn = screen();
  const std::string until_then = drawn.substr(0, drawn.find("$ ls\n") + 5);
  EXPECT_THAT(shown(until_then), ElementsAre("epochs: 1%", "batches: 50%^C", "$ ls"));
}

TEST_F(BarsInTerminal, WhatIsWrittenElsewhereLeavesTheBarsAlone) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    ProgressBar bar(10, Rank{}, {.description = "a"});
    write_above_bars(file, "text\n");
  }
  EXPECT_EQ(std::ftell(file), 5);
  std::fclose(file);
  EXPECT_THAT(screen(), testing::Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace accelerate
