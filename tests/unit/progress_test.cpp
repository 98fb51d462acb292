#include "accelerate/progress.h"

#include <accelerate/log.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/bar_screen.h"

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

class ProgressRange : public testing::Test {
 protected:
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

TEST_F(ProgressRange, ShowsTheDescriptionOfTheMoment) {
  auto bar = progress(items_, Rank{}, options("epoch 1"));
  for (const int item : bar) bar.set_description("item " + std::to_string(item));
  EXPECT_THAT(out_.str(), MatchesRegex("item 4: 4/4 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressRange, OneInsideAnotherLeavesItsLineFirst) {
  for ([[maybe_unused]] const int epoch :
       progress(std::vector<int>{1, 2}, Rank{}, options("epochs"))) {
    for ([[maybe_unused]] const int item : progress(items_, Rank{}, options("batches"))) {
    }
  }
  EXPECT_THAT(out_.str(), MatchesRegex("batches: 4/4 in [^\n]*\n"
                                       "batches: 4/4 in [^\n]*\n"
                                       "epochs: 2/2 in [^\n]*\n"));
}

TEST_F(ProgressRange, OneThatIsNotToStayLeavesNoLine) {
  for ([[maybe_unused]] const int item :
       progress(items_, Rank{}, {.stream = &out_, .leave = false})) {
  }
  EXPECT_EQ(out_.str(), "");
}

class ProgressByHand : public ProgressRange {};

TEST_F(ProgressByHand, CountsWhatItIsToldUntilItsEndOfLife) {
  {
    ProgressBar bar(10, Rank{}, options("download"));
    bar.update(4);
    bar.update();
    bar.set_postfix("mirror 2");
    EXPECT_EQ(out_.str(), "");
  }
  EXPECT_THAT(out_.str(), MatchesRegex("download: 5/10 in [0-9:]+, [0-9.]+it/s, mirror 2\n"));
}

TEST_F(ProgressByHand, IsClosedOnce) {
  ProgressBar bar(ProgressBar::kUnknownTotal, Rank{}, options("download"));
  bar.update(7);
  bar.close();
  bar.update(3);
  bar.close();
  EXPECT_THAT(out_.str(), MatchesRegex("download: 7 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressByHand, CanBeMoved) {
  {
    ProgressBar bar(2, Rank{}, options("download"));
    bar.update();
    ProgressBar other = std::move(bar);
    other.update();
  }
  EXPECT_THAT(out_.str(), MatchesRegex("download: 2/2 in [0-9:]+, [0-9.]+it/s\n"));
}

TEST_F(ProgressByHand, IsSilentOnOtherProcesses) {
  {
    ProgressBar bar(2, Rank{.local_main = false}, options());
    bar.update(2);
    bar.set_description("a");
    bar.set_postfix("b");
  }
  EXPECT_EQ(out_.str(), "");
}

// Standard error is a terminal that shows ASCII and is 60 columns wide.
class ProgressInTerminal : public testing::Test {
 protected:
  void SetUp() override {
    setenv("LC_ALL", "C", 1);
    setenv("COLUMNS", "200", 1);  // what the shell said at the start; the terminal itself knows
    ASSERT_EQ(openpty(&terminal_, &worker_side_, nullptr, nullptr, nullptr), 0);
    termios settings{};
    tcgetattr(worker_side_, &settings);
    cfmakeraw(&settings);
    tcsetattr(worker_side_, TCSANOW, &settings);
    resize(60);
    original_ = dup(STDERR_FILENO);
    dup2(worker_side_, STDERR_FILENO);
    reader_ = std::thread([this] {
      char buffer[4096];
      ssize_t count = 0;
      // Ends with an error when no one holds the other side any more.
      while ((count = read(terminal_, buffer, sizeof buffer)) > 0) {
        screen_.append(buffer, static_cast<size_t>(count));
      }
    });
  }
  void TearDown() override {
    screen();
    close(terminal_);
    close(original_);
    for (const char* name : {"LC_ALL", "COLUMNS"}) unsetenv(name);
  }

  void resize(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(worker_side_, TIOCSWINSZ, &size), 0);
  }

  // All that was drawn. Standard error is what it was before from now on.
  std::string screen() {
    if (reader_.joinable()) {
      dup2(original_, STDERR_FILENO);
      close(worker_side_);
      reader_.join();
    }
    return screen_;
  }

  std::vector<int> items_{1, 2, 3, 4};

 private:
  int terminal_ = -1;
  int worker_side_ = -1;
  int original_ = -1;
  std::thread reader_;
  std::string screen_;  // the reader's until it is joined
};

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

TEST_F(ProgressInTerminal, OneInsideAnotherIsDrawnBelowItAndMovesAboveItAtItsEnd) {
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

TEST_F(ProgressInTerminal, ThreeAtATimeKeepTheirLinesWhicheverIsRedrawn) {
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

TEST_F(ProgressInTerminal, OneThatIsNotToStayIsWipedOff) {
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

TEST_F(ProgressInTerminal, LinesOfTheLogComeAboveTheBars) {
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

TEST_F(ProgressInTerminal, WhatIsWrittenElsewhereLeavesTheBarsAlone) {
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
