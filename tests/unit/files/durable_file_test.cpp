// A file with checksums that is on the disk when it is closed, or not there at all.
#include "files/durable/durable_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "accelerate/errors.h"
#include "files/durable/checksum.h"
#include "launch/scratch_folder.h"
#include "support/error_of.h"

namespace accelerate::files {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DurableFileTest : public ::testing::Test {
 protected:
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool is_empty_folder() const { return std::filesystem::is_empty(folder_.path()); }

  test::ScratchFolder folder_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Bytes that differ from each other far and near.
std::string pattern(size_t count, unsigned seed = 1) {
  std::string text(count, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return text;
}

TEST(ChecksumTest, IsXxh3OfSixtyFourBits) {
  // As `xxhsum -H3` prints them.
  EXPECT_EQ(checksum_text(checksum_of({})), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum_of(bytes_of("abc"))), "78af5f94892f3950");
}

TEST(ChecksumTest, DoesNotDependOnWhereThePiecesEnd) {
  const std::string text = pattern(100'000);
  Checksum checksum;
  size_t begin = 0;
  for (size_t size = 1; begin < text.size(); size = size * 3 + 1) {
    checksum.update(bytes_of(std::string_view(text).substr(begin, size)));
    begin += size;
  }
  EXPECT_EQ(checksum.digest(), checksum_of(bytes_of(text)));
  checksum.restart();
  EXPECT_EQ(checksum.digest(), checksum_of({}));
}

TEST(ChecksumTest, OnlySixteenLowerCaseDigitsAreOne) {
  EXPECT_EQ(parse_checksum("00000000000000ff"), 255U);
  EXPECT_EQ(parse_checksum(checksum_text(0x0123456789abcdef)), 0x0123456789abcdefU);
  for (const char* text : {"", "ff", "00000000000000fF", "00000000000000fg", "0x000000000000ff",
                           "000000000000000ff", " 0000000000000ff"}) {
    EXPECT_FALSE(parse_checksum(text)) << text;
  }
}

TEST_F(DurableFileTest, BytesBetweenPartsBelongToNone) {
  DurableFile file(folder_.path(), "a.bin");
  file.write(bytes_of("head"));
  file.begin_part("first");
  file.write(bytes_of("1234"));
  file.end_part();
  file.write(bytes_of("between"));
  file.begin_part("empty");
  file.end_part();
  file.begin_part("last");
  file.write(bytes_of("56"));
  file.end_part();
  file.write(bytes_of("tail"));
  const FileRecord record = file.close();
  EXPECT_EQ(record.checksum, checksum_of(bytes_of("head1234between56tail")));
  const std::vector<PartRecord> parts{
      {.name = "first", .offset = 4, .bytes = 4, .checksum = checksum_of(bytes_of("1234"))},
      {.name = "empty", .offset = 15, .bytes = 0, .checksum = checksum_of({})},
      {.name = "last", .offset = 15, .bytes = 2, .checksum = checksum_of(bytes_of("56"))}};
  EXPECT_EQ(record.parts, parts);
}

TEST_F(DurableFileTest, KeepsTheChecksumOfTheFileAndOfEachPart) {
  DurableFile file(folder_.path(), "model.safetensors");
  file.write(bytes_of("header"));
  file.begin_part("a");
  file.write(bytes_of("first "));
  file.write(bytes_of("tensor"));
  file.begin_part("empty");
  file.begin_part("b");
  file.write(bytes_of("second"));
  EXPECT_EQ(file.size(), 24U);
  const FileRecord record = file.close();

  EXPECT_EQ(content("model.safetensors"), "headerfirst tensorsecond");
  const auto sum = [](std::string_view text) { return checksum_of(bytes_of(text)); };
  const FileRecord expected{
      .name = "model.safetensors",
      .bytes = 24,
      .checksum = sum("headerfirst tensorsecond"),
      .parts = {{.name = "a", .offset = 6, .bytes = 12, .checksum = sum("first tensor")},
                {.name = "empty", .offset = 18, .bytes = 0, .checksum = sum("")},
                {.name = "b", .offset = 18, .bytes = 6, .checksum = sum("second")}}};
  EXPECT_EQ(record, expected);
}

TEST_F(DurableFileTest, WithoutChecksumsTheRecordHasOffsetsAndSizesAlone) {
  DurableFile file(folder_.path(), "a", Checksums::kNone);
  file.write(bytes_of("header"));
  file.begin_part("w");
  file.write(bytes_of("tensor"));
  const FileRecord expected{
      .name = "a", .bytes = 12, .parts = {{.name = "w", .offset = 6, .bytes = 6}}};
  EXPECT_EQ(file.close(), expected);
  EXPECT_EQ(content("a"), "headertensor");
}

TEST_F(DurableFileTest, WritesOfEverySizeArriveInOrder) {
  std::string all;
  DurableFile file(folder_.path(), "a");
  unsigned seed = 0;
  for (const size_t size : {1, 262143, 1, 262144, 5, 262145, 0, 3000000, 7, 262144, 262144, 2}) {
    const std::string text = pattern(size, ++seed);
    file.begin_part(std::to_string(seed));
    file.write(bytes_of(text));
    all += text;
  }
  const FileRecord record = file.close();
  EXPECT_TRUE(content("a") == all);
  EXPECT_EQ(record.bytes, all.size());
  EXPECT_EQ(record.checksum, checksum_of(bytes_of(all)));
  uint64_t end = 0;
  for (const PartRecord& part : record.parts) {
    EXPECT_EQ(part.offset, end);
    EXPECT_EQ(part.checksum,
              checksum_of(bytes_of(std::string_view(all).substr(part.offset, part.bytes))));
    end += part.bytes;
  }
  EXPECT_EQ(end, all.size());
}

TEST_F(DurableFileTest, IsGoneUnlessItWasClosed) {
  {
    DurableFile file(folder_.path(), "a");
    file.write(bytes_of("unfinished"));
    DurableFile moved = std::move(file);
    EXPECT_FALSE(is_empty_folder());
  }
  EXPECT_TRUE(is_empty_folder());
}

TEST_F(DurableFileTest, NeverWritesOverAFileOrThroughALink) {
  folder_.write("taken", "mine");
  std::filesystem::create_symlink(folder_.path() / "elsewhere", folder_.path() / "link");
  const auto taken = test::error_of<CheckpointError>([&] { DurableFile(folder_.path(), "taken"); });
  EXPECT_EQ(taken.message(), "the file cannot be created: File exists");
  EXPECT_EQ(taken.where(), (folder_.path() / "taken").string());
  EXPECT_EQ(test::error_of<CheckpointError>([&] { DurableFile(folder_.path(), "link"); }).message(),
            "the file cannot be created: File exists");
  EXPECT_EQ(content("taken"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "elsewhere"));
}

TEST_F(DurableFileTest, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"", ".", "..", "../a", "a/b", "/a", ".a", "a\nb", "\xc3\xa4"}) {
    EXPECT_THAT(
        test::error_of<CheckpointError>([&] { DurableFile(folder_.path(), name); }).message(),
        HasSubstr("cannot be named"))
        << name;
  }
  EXPECT_TRUE(is_empty_folder());
}

TEST_F(DurableFileTest, TwoPartsOfOneNameAreRefused) {
  DurableFile file(folder_.path(), "a");
  file.begin_part("weight");
  EXPECT_EQ(test::error_of<CheckpointError>([&] { file.begin_part("weight"); }).message(),
            "two parts of the file are named \"weight\"");
}

TEST_F(DurableFileTest, AFullDiskIsACheckpointErrorThatSaysWhatToDo) {
  // A file size limit stops write() part of the way, as a disk that fills up does.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit limit = old;
  limit.rlim_cur = 100'000;
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto error = test::error_of<CheckpointError>([&] {
    DurableFile file(folder_.path(), "a");
    file.write(bytes_of(pattern(1'000'000)));
  });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(error.message(), "the file cannot be written: File too large");
  EXPECT_EQ(error.where(), (folder_.path() / "a").string());
  EXPECT_EQ(error.hint(), "raise the limit on the size of files (ulimit -f)");
  EXPECT_TRUE(is_empty_folder());
}

TEST_F(DurableFileTest, AFileThatSomebodyElseWroteGetsARecord) {
  const std::string text = pattern(700'000);
  folder_.write("extra.json", text);
  const FileRecord record = record_written_file(folder_.path(), "extra.json");
  EXPECT_EQ(record.name, "extra.json");
  EXPECT_EQ(record.bytes, text.size());
  EXPECT_EQ(record.checksum, checksum_of(bytes_of(text)));
  EXPECT_THAT(record.parts, IsEmpty());
  std::filesystem::create_symlink(folder_.path() / "extra.json", folder_.path() / "link");
  EXPECT_EQ(test::error_of<CheckpointError>([&] {
              record_written_file(folder_.path(), "link");
            }).message(),
            "the file is a link");
}

}  // namespace
}  // namespace accelerate::files
