// Small tools that every room uses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/fnv1a.h"
#include "base/host_name.h"
#include "base/message_text.h"
#include "base/port_of_name.h"
#include "base/printable_text.h"
#include "base/random_id.h"
#include "base/size_in_words.h"
#include "base/split_mix.h"
#include "base/terminal_colours.h"
#include "base/terminal_width.h"
#include "base/unique_fd.h"

namespace accelerate {
namespace {

// The values of its authors; those of another hash would part ranks of different builds.
TEST(Fnv1a, HasTheValuesOfItsAuthors) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325U);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(fnv1a("\xff"), (Fnv1a::kBasis ^ 0xffU) * Fnv1a::kPrime);  // no sign
}

TEST(Fnv1a, TakesItsBytesInParts) {
  const std::string bar = "bar";
  EXPECT_EQ(Fnv1a().add("foo").add(bar.data(), bar.size()).value(), fnv1a("foobar"));
}

// Other ports would part ranks, and launchers, of different builds.
TEST(PortOfName, IsTheSameInEveryBuild) {
  EXPECT_EQ(port_of_name(""), 26261);
  EXPECT_EQ(port_of_name("a"), 22220);
  EXPECT_EQ(port_of_name("slurm-42.1"), 24340);
  EXPECT_EQ(port_of_name("größe"), 21914);  // no sign
}

// The values of its authors: seeds of streams and of samples follow from them.
TEST(SplitMix, HasTheValuesOfItsAuthors) {
  SplitMix numbers(0);
  EXPECT_EQ(numbers.next(), 0xe220a8397b1dcdafU);
  EXPECT_EQ(numbers.next(), 0x6e789e6aa1b965f4U);
  EXPECT_EQ(numbers.next(), 0x06c45d188009454fU);
  EXPECT_EQ(split_mix(kSplitMixStep), 0xe220a8397b1dcdafU);
  const double share = numbers.share();
  EXPECT_GE(share, 0);
  EXPECT_LT(share, 1);
}

TEST(SizeInWords, TakesTheUnitThatKeepsTheNumberShort) {
  EXPECT_EQ(size_in_words(0, 1), "0 B");
  EXPECT_EQ(size_in_words(1023, 1), "1023 B");
  EXPECT_EQ(size_in_words(1024, 1), "1.0 KiB");
  EXPECT_EQ(size_in_words((1 << 20) - 1, 1), "1.0 MiB");  // not 1024.0 KiB
  EXPECT_EQ(size_in_words((1 << 20) - 20, 2), "1023.98 KiB");
  EXPECT_EQ(size_in_words(~uint64_t{0}, 2), "16.00 EiB");
}

TEST(HostName, IsThatOfTheSystem) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  EXPECT_EQ(host_name(), name);
}

TEST(MessageText, IsShortAndPrintableWhateverAFileHolds) {
  EXPECT_EQ(shortened("a\nb\xff"), "a\\x0ab\\xff");
  EXPECT_EQ(shortened(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(in_quotes(std::string(81, 'x')), '"' + std::string(80, 'x') + "...\"");
  EXPECT_EQ(json_complaint(std::runtime_error("[json.exception] line 1: syntax error while"), 7),
            "syntax error while at byte 7");
}

TEST(PrintableAscii, HasNeitherControlCharactersNorOtherLetters) {
  EXPECT_TRUE(is_printable_ascii(""));
  EXPECT_TRUE(is_printable_ascii(" ~aZ09"));
  EXPECT_FALSE(is_printable_ascii("a\n"));
  EXPECT_FALSE(is_printable_ascii("\x7f"));
  EXPECT_FALSE(is_printable_ascii("ö"));
}

TEST(RandomId, HasSixteenDigitsAndComesOnce) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = random_id();
    EXPECT_EQ(id.size(), 16U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(TerminalWidth, CountsAndCutsCharacters) {
  EXPECT_EQ(columns_of_text("größe ✓"), 7U);
  EXPECT_EQ(first_columns("größe", 3), "grö");
  EXPECT_EQ(first_columns("größe", 9), "größe");
  EXPECT_EQ(first_columns("größe", 0), "");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(columns_of_terminal(ends[1]), 0U);
  close(ends[0]);
  close(ends[1]);
}

TEST(TerminalWidth, BreaksLinesBetweenWords) {
  EXPECT_EQ(words_in_lines("one two three", 4, 11, 2), "one two\n  three");
  EXPECT_EQ(words_in_lines("one two three", 5, 11, 2), "one\n  two three");
  EXPECT_EQ(words_in_lines("unbreakable", 4, 6, 2), "unbreakable");
  EXPECT_EQ(words_in_lines("a  b", 0, 80, 0), "a  b");  // columns of a table stay apart
}

TEST(Messages, LongLinesAreBrokenBetweenWordsAndGoOnUnderWhatTheySay) {
  EXPECT_EQ(
      wrapped_messages("error: one two three\n  at   a/long/path/to/a/file\n  try  four fives\n",
                       16),
      "error: one two\n       three\n  at   a/long/path/to/a/file\n  try  four\n       fives\n");
  EXPECT_EQ(wrapped_messages("accelerate launch: one two\n", 22),
            "accelerate launch: one\n  two\n");
  EXPECT_EQ(wrapped_messages("  ranks 0, 2 and 3 were stopped\n", 20),
            "  ranks 0, 2 and 3\n    were stopped\n");
  EXPECT_EQ(wrapped_messages("error: größe größe\n", 18), "error: größe größe\n");  // characters
}

TEST(Messages, WhatAWorkerSaidStaysAsItIs) {
  const std::string quoted = "    | a  line that is longer than the terminal is\n";
  EXPECT_EQ(wrapped_messages(quoted, 20), quoted);
}

TEST(Messages, AHintIsOfOneColourAlsoWhereItIsBroken) {
  EXPECT_EQ(coloured_messages("  try  four\n       five\n       six\n  next\n       no\n", true),
            "\x1b[36m  try  four\x1b[0m\n\x1b[36m       five\x1b[0m\n\x1b[36m       six\x1b[0m\n"
            "  next\n       no\n");
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwnsAndNothingElse) {
  int number = -1;
  {
    UniqueFd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    ASSERT_TRUE(is_open(number));
    UniqueFd second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.get(), number);
  }
  EXPECT_FALSE(is_open(number));
  UniqueFd kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int released = kept.release();
  EXPECT_FALSE(kept);
  kept.reset();
  EXPECT_TRUE(is_open(released));
  kept = UniqueFd(released);
  kept = UniqueFd();
  EXPECT_FALSE(is_open(released));
}

}  // namespace
}  // namespace accelerate
