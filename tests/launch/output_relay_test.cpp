#include "launch/output/output_relay.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>

#include "base/unique_fd.h"

namespace accelerate::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// A sink whose output the test reads back. Pipes are made large enough not to block.
class Relay : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_end_ = UniqueFd(ends[0]);
    write_end_ = UniqueFd(ends[1]);
    sink_.emplace(write_end_.get());
  }

  OutputRelay relay(RelayMode mode, int rank = 1, StreamKind stream = StreamKind::kOut) {
    return OutputRelay(mode, rank, stream, *sink_, tail_);
  }

  // What came out since the last call.
  std::string output() {
    std::string text;
    char buffer[65536];
    while (true) {
      if (sink_->wants_write()) sink_->write_some();
      const ssize_t count = read(read_end_.get(), buffer, sizeof buffer);
      if (count > 0) text.append(buffer, static_cast<size_t>(count));
      if (count <= 0 && !sink_->wants_write()) return text;
    }
  }

  // A terminal that changes nothing of what is written.
  void write_to_a_terminal() {
    int terminal[2];
    ASSERT_EQ(openpty(&terminal[0], &terminal[1], nullptr, nullptr, nullptr), 0);
    read_end_ = UniqueFd(terminal[0]);
    write_end_ = UniqueFd(terminal[1]);
    termios raw{};
    cfmakeraw(&raw);
    ASSERT_EQ(tcsetattr(write_end_.get(), TCSANOW, &raw), 0);
    ASSERT_EQ(fcntl(read_end_.get(), F_SETFL, O_NONBLOCK), 0);
    sink_.emplace(write_end_.get());
  }

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::optional<OutputSink> sink_;
  LineTail tail_;
};

TEST_F(Relay, ImmediateModePassesPartialLinesOn) {
  OutputRelay relay = this->relay(RelayMode::kImmediate);
  relay.consume("50%");
  EXPECT_EQ(output(), "50%");
  relay.consume("\r60%");
  EXPECT_EQ(output(), "\r60%");
}

// The bar is on standard error, the text on standard output of the same worker.
TEST_F(Relay, TextOfTheWorkerWhoseBarStandsInTheTerminalGoesAboveTheBar) {
  write_to_a_terminal();
  OutputRelay bar = relay(RelayMode::kImmediate, 0, StreamKind::kErr);
  OutputRelay text = relay(RelayMode::kImmediate, 0);
  text.consume("name? ");  // no bar: at once
  EXPECT_EQ(output(), "name? ");
  bar.consume("\r10%|=  |");
  text.consume("hello\nhalf");
  EXPECT_EQ(output(), "\r10%|=  |\r\x1b[Jhello\n\r10%|=  |");
  bar.consume("\r20%|== |");
  text.consume(" a line\r\n");  // as it comes from a terminal
  EXPECT_EQ(output(), "\r20%|== |\r\x1b[Jhalf a line\r\n\r20%|== |");
  text.consume("rest");
  bar.consume("\r30%|===|\n");
  EXPECT_EQ(output(), "\r30%|===|\nrest");
}

// Both streams go through one terminal of the worker, and what is read at once may hold several
// writes.
TEST_F(Relay, TextThatIsReadTogetherWithADrawingGoesAboveTheBarToo) {
  write_to_a_terminal();
  OutputRelay worker = relay(RelayMode::kImmediate, 0);
  worker.consume("\r10%|=  |  ");
  output();
  worker.consume("\r\x1b[Jprinted\r\n\r10%|=  |from cout\r\n");
  EXPECT_EQ(output(),
            "\r\x1b[Jprinted\r\n\r10%|=  |"
            "\r\x1b[Jfrom cout\r\n\r10%|=  |");
  worker.consume("one more\r\n\r20%|== |");
  EXPECT_EQ(output(), "\r\x1b[Jone more\r\n\r10%|=  |\r20%|== |");
}

TEST_F(Relay, WholeLineModeHoldsALineUntilItsEnd) {
  OutputRelay relay = this->relay(RelayMode::kWholeLines);
  relay.consume("one\ntw");
  EXPECT_EQ(output(), "one\n");
  relay.consume("o");
  EXPECT_EQ(output(), "");
  relay.consume("\nthree");
  EXPECT_EQ(output(), "two\n");
  relay.finish();
  EXPECT_EQ(output(), "three");
}

TEST_F(Relay, WholeLineModePassesARedrawnLineOn) {
  OutputRelay relay = this->relay(RelayMode::kWholeLines);
  relay.consume("10%\r20%");
  EXPECT_EQ(output(), "10%\r");
}

TEST_F(Relay, LinesOfTwoWorkersDoNotMix) {
  OutputRelay first = relay(RelayMode::kWholeLines, 0);
  OutputRelay second = relay(RelayMode::kWholeLines, 1);
  first.consume("from ");
  second.consume("from the second\n");
  first.consume("the first\n");
  EXPECT_EQ(output(), "from the second\nfrom the first\n");
}

TEST_F(Relay, PrefixedModeNamesTheRankOncePerLine) {
  OutputRelay relay = this->relay(RelayMode::kPrefixed, 12);
  relay.consume("one\n\ntw");
  relay.consume("o\n");
  EXPECT_EQ(output(), "[rank 12] one\n[rank 12] \n[rank 12] two\n");
}

TEST_F(Relay, PrefixedModeEndsALastLineWithoutALineEnd) {
  OutputRelay relay = this->relay(RelayMode::kPrefixed);
  relay.consume("no end");
  EXPECT_EQ(output(), "");
  relay.finish();
  EXPECT_EQ(output(), "[rank 1] no end\n");
  relay.finish();
  EXPECT_EQ(output(), "");
}

TEST_F(Relay, PassesALineBeyondTheLimitOnInPieces) {
  OutputRelay relay = this->relay(RelayMode::kPrefixed);
  const std::string half(OutputRelay::kMaxHeldBytes / 2 + 1, 'x');
  relay.consume(half);
  EXPECT_EQ(output(), "");
  relay.consume(half);
  EXPECT_EQ(output(), "[rank 1] " + half + half);
  relay.consume("y\nz\n");
  EXPECT_EQ(output(), "y\n[rank 1] z\n");
}

TEST_F(Relay, PassesEveryByteOnUnchanged) {
  std::string all_bytes;
  for (int i = 0; i < 256; ++i) all_bytes += static_cast<char>(i);
  OutputRelay relay = this->relay(RelayMode::kWholeLines);
  relay.consume(all_bytes);
  relay.finish();
  EXPECT_EQ(output(), all_bytes);
}

TEST_F(Relay, SinkSplitsLongOutputAfterWholeLines) {
  const std::string line(3000, 'a');
  sink_->enqueue(line + "\n" + line + "\n");
  sink_->write_some();
  std::string first(8192, '\0');
  first.resize(static_cast<size_t>(read(read_end_.get(), first.data(), first.size())));
  EXPECT_EQ(first, line + "\n");
  EXPECT_EQ(output(), line + "\n");
}

TEST_F(Relay, SinkKeepsWhatAFullPipeDoesNotTake) {
  const std::string much(300'000, 'b');
  sink_->enqueue(much);
  for (int i = 0; i < 100; ++i) sink_->write_some();
  EXPECT_TRUE(sink_->wants_write());
  EXPECT_EQ(output(), much);
}

TEST_F(Relay, SinkKnowsThatItsReaderHasGone) {
  const auto old = signal(SIGPIPE, SIG_IGN);
  read_end_.reset();
  sink_->enqueue("lost\n");
  sink_->write_some();
  signal(SIGPIPE, old);
  EXPECT_TRUE(sink_->is_broken());
  EXPECT_FALSE(sink_->wants_write());
}

TEST(LineTail, KeepsTheLastTwentyLinesOfBothStreamsInOrder) {
  LineTail tail;
  for (int i = 0; i < 30; ++i) {
    tail.append(i % 2 == 0 ? StreamKind::kOut : StreamKind::kErr, std::to_string(i) + "\n");
  }
  const auto lines = tail.lines();
  ASSERT_THAT(lines, SizeIs(20));
  EXPECT_EQ(lines.front(), "10");
  EXPECT_EQ(lines.back(), "29");
}

TEST(LineTail, PutsTogetherLinesThatCameInPieces) {
  LineTail tail;
  tail.append(StreamKind::kOut, "out ");
  tail.append(StreamKind::kErr, "err ");
  tail.append(StreamKind::kOut, "one\n");
  tail.append(StreamKind::kErr, "two");
  EXPECT_THAT(tail.lines(), ElementsAre("out one", "err two"));
}

TEST(LineTail, ShowsOfARedrawnLineWhatWasSeenLast) {
  LineTail tail;
  tail.append(StreamKind::kErr, "10%\r20%\r30%\r\nwindows line\r\n90%\r");
  EXPECT_THAT(tail.lines(), ElementsAre("30%", "windows line", "90%"));
}

TEST(LineTail, CutsLongLinesAndTakesTerminalControlOut) {
  LineTail tail;
  tail.append(StreamKind::kErr, std::string(100'000, 'x') + "\n");
  tail.append(StreamKind::kErr, std::string("\x1b[1;31mred\x1b[0m\tbell\a nul") + '\0' + "\n");
  EXPECT_THAT(tail.lines(),
              ElementsAre(std::string(LineTail::kMaxLineBytes, 'x') + " [...]", "red\tbell? nul?"));
}

}  // namespace
}  // namespace accelerate::launch
