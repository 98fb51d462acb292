// Progress over a range and by hand, where there is no terminal: one line is left.
#include "accelerate/progress.h"

#include <gmock/gmock.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "unit/base/progress_processes.h"

namespace accelerate {
namespace {

using test::Rank;
using testing::ElementsAre;
using testing::MatchesRegex;

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

TEST_F(ProgressRange, WritesLinesOnTheWayWhereThereIsNoTerminal) {
  ProgressOptions often = options();
  EXPECT_EQ(often.line_interval, std::chrono::seconds(30));
  often.line_interval = std::chrono::milliseconds(0);
  for (const int item : progress(items_, Rank{}, often)) (void)item;
  EXPECT_THAT(out_.str(), MatchesRegex("epoch 1: 1/4 in [^\n]+\nepoch 1: 2/4 in [^\n]+\n"
                                       "epoch 1: 3/4 in [^\n]+\n(epoch 1: 4/4 in [^\n]+\n)+"));
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

}  // namespace
}  // namespace accelerate
