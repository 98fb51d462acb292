// Records of a run: written, read while they grow, and read when they are damaged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "monitor/scratch.h"
#include "run_record/record_format.h"
#include "run_record/record_reader.h"
#include "run_record/record_writer.h"

namespace accelerate::run_record {
namespace {

using monitor::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
T decoded(const T& record) {
  std::string bytes(kMagic);
  encode(record, bytes);
  RecordParser parser;
  parser.add(bytes);
  const auto again = parser.next();
  return again ? std::get<T>(*again) : T{};
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(RunRecord, FieldsComeBackAsTheyWere) {
  const Steps steps = decoded(Steps{.time_us = 5'000'000'000,
                                    .last = 300,
                                    .count = 7,
                                    .total_us = 70'000,
                                    .longest_us = 12'000,
                                    .samples = 224,
                                    .parts = {{.name = 1, .us = 9}, {.name = 2, .us = 127}}});
  EXPECT_EQ(steps.time_us, 5'000'000'000U);
  EXPECT_EQ(steps.last, 300U);
  EXPECT_EQ(steps.count, 7U);
  EXPECT_EQ(steps.samples, 224U);
  ASSERT_EQ(steps.parts.size(), 2U);
  EXPECT_EQ(steps.parts[1].us, 127U);
  const Values values = decoded(Values{.step = std::numeric_limits<int64_t>::min(),
                                       .values = {{.name = 3, .value = -2.5e-300}}});
  EXPECT_EQ(values.step, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(values.values.at(0).value, -2.5e-300);
  const Now now = decoded(Now{.since_us = 4, .waits = true, .activity = "save_model"});
  EXPECT_TRUE(now.waits);
  EXPECT_EQ(now.activity, "save_model");
  EXPECT_EQ(decoded(End{.exit_code = -3}).exit_code, -3);
}

// As docs/run_record.md spells it out.
TEST(RunRecord, BytesAreThoseOfTheDocument) {
  std::string bytes;
  encode(Values{.time_us = 500'000, .step = 3, .values = {{1, 2.5}}}, bytes);
  EXPECT_EQ(bytes, std::string("\xe2\x9e\x01\xd1"
                               "\x0e\x00"
                               "\x04\x00"
                               "\xa0\xc2\x1e"
                               "\x06"
                               "\x01\x01"
                               "\x00\x00\x00\x00\x00\x00\x04\x40",
                               22));
}

TEST(RunRecord, LongTextsAreCutBetweenCharacters) {
  std::string text(4095, 'a');
  text += "ä";  // two bytes, of which one would fit
  const Name name = decoded(Name{.id = 1, .text = text});
  EXPECT_EQ(name.text, std::string(4095, 'a'));
}

TEST(RunRecord, AStepTakesFewBytes) {
  std::string bytes;
  encode(Steps{.time_us = 3'600'000'000,
               .last = 100'000,
               .count = 1,
               .total_us = 180'000,
               .longest_us = 180'000,
               .samples = 32,
               .parts = {{1, 9'000}, {2, 80'000}, {3, 20'000}}},
         bytes);
  EXPECT_LE(bytes.size(), 48U);
}

TEST(RunRecord, FilesOfOneWriterAreNumbered) {
  EXPECT_EQ(file_name(WriterKind::kRank, 12, 3), "rank_12-003.rec");
  const Scratch scratch;
  const RecordWriter first(scratch.path() / "new" / "run", {.index = 4});
  const RecordWriter second(scratch.path() / "new" / "run", {.index = 4});
  EXPECT_EQ(first.path().filename(), "rank_4-000.rec");
  EXPECT_EQ(second.path().filename(), "rank_4-001.rec");
}

TEST(RunRecord, AFolderThatCannotBeMadeIsNamed) {
  try {
    RecordWriter("/proc/nowhere/run", {});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.message(), HasSubstr("cannot record the run"));
    EXPECT_THAT(error.where(), HasSubstr("/proc/nowhere/run"));
  }
}

TEST(RunRecord, AReaderFollowsAFileThatGrows) {
  const Scratch scratch;
  RecordWriter writer(scratch.path(), {.index = 2, .world_size = 8, .host = "here"});
  RecordReader reader(writer.path());
  auto begin = reader.next();
  ASSERT_TRUE(begin);
  EXPECT_EQ(std::get<Begin>(*begin).world_size, 8U);
  EXPECT_GT(std::get<Begin>(*begin).unix_us, 0);
  EXPECT_FALSE(reader.next());

  const std::pair<std::string_view, double> values[] = {{"loss", 2.5}, {"accuracy", 0.5}};
  EXPECT_TRUE(writer.append_values(17, values));
  EXPECT_TRUE(writer.append_values(18, values));
  EXPECT_FALSE(reader.next()) << "nothing was flushed yet";
  writer.flush();
  EXPECT_EQ(std::get<Name>(*reader.next()).text, "loss");
  EXPECT_EQ(std::get<Name>(*reader.next()).text, "accuracy");
  const Values first = std::get<Values>(*reader.next());
  EXPECT_EQ(first.step, 17);
  EXPECT_EQ(first.values.at(1).value, 0.5);
  EXPECT_EQ(std::get<Values>(*reader.next()).step, 18);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.is_damaged());
}

TEST(RunRecord, ARecordThatIsHalfThereIsWaitedFor) {
  std::string bytes(kMagic);
  encode(Begin{.host = "here"}, bytes);
  encode(End{.exit_code = 9}, bytes);
  RecordParser parser;
  int found = 0;
  for (const char byte : bytes) {
    parser.add({&byte, 1});
    while (parser.next()) ++found;
  }
  EXPECT_EQ(found, 2);
  EXPECT_EQ(parser.position(), bytes.size());
}

TEST(RunRecord, BytesThatHaveNotComeYetAreReadAgain) {
  const Scratch scratch;
  RecordWriter writer(scratch.path(), {});
  RecordReader reader(writer.path());
  ASSERT_TRUE(reader.next());
  const auto size = std::filesystem::file_size(writer.path());
  std::filesystem::resize_file(writer.path(), size + 4096);  // zeros, as some file systems show
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.is_damaged());
  std::filesystem::resize_file(writer.path(), size);
  writer.append(End{.exit_code = 5});
  writer.flush();
  const auto end = reader.next();
  ASSERT_TRUE(end);
  EXPECT_EQ(std::get<End>(*end).exit_code, 5);
}

TEST(RunRecord, DamageEndsAFileAndIsTold) {
  std::string bytes(kMagic);
  encode(Begin{}, bytes);
  const size_t good = bytes.size();
  encode(Name{.id = 1, .text = "loss"}, bytes);
  bytes[good + kFrameBytes + 2] ^= 1;
  RecordParser parser;
  parser.add(bytes);
  EXPECT_TRUE(parser.next());
  EXPECT_FALSE(parser.next());
  EXPECT_TRUE(parser.is_damaged());
  EXPECT_EQ(parser.position(), good);

  RecordParser other;
  other.add("{\"json\": 1}");
  EXPECT_FALSE(other.next());
  EXPECT_TRUE(other.is_damaged());
}

TEST(RunRecord, KindsOfLaterVersionsAreSkipped) {
  std::string bytes(kMagic);
  const size_t begin = bytes.size();
  encode(Name{.id = 1, .text = "x"}, bytes);
  bytes[begin + 6] = 99;
  const uint32_t check = checksum(std::string_view(bytes).substr(begin + 4, 4),
                                  std::string_view(bytes).substr(begin + kFrameBytes));
  std::memcpy(bytes.data() + begin, &check, sizeof check);
  encode(End{.exit_code = 1}, bytes);
  RecordParser parser;
  parser.add(bytes);
  const auto record = parser.next();
  ASSERT_TRUE(record);
  EXPECT_TRUE(std::holds_alternative<End>(*record));
  EXPECT_EQ(parser.skipped(), 1U);
}

TEST(RunRecord, AFullDiskEndsTheRecordAndNothingElse) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const Scratch scratch;
  RecordWriter writer(scratch.path(), {});
  const int full = open("/dev/full", O_WRONLY);
  // The file of the writer is the one that was opened last before.
  ASSERT_GE(dup2(full, full - 1), 0);
  writer.append(End{});
  writer.flush();
  EXPECT_THAT(writer.failure(), HasSubstr("No space left on device"));
  EXPECT_FALSE(writer.append(End{}));
  close(full);
}

TEST(RunRecord, WhatFindsNoRoomIsCounted) {
  const Scratch scratch;
  RecordWriter writer(scratch.path(), {});
  const std::pair<std::string_view, double> values[] = {{"loss", 1.0}};
  int64_t lost = 0;
  for (int64_t step = 0; step < 100'000; ++step) lost += writer.append_values(step, values) ? 0 : 1;
  EXPECT_GT(lost, 0);
  writer.flush();
  RecordReader reader(writer.path());
  Lost told;
  int64_t kept = 0;
  while (const auto record = reader.next()) {
    if (const auto* any = std::get_if<Lost>(&*record)) told = *any;
    kept += std::holds_alternative<Values>(*record) ? 1 : 0;
  }
  EXPECT_EQ(told.values, static_cast<uint64_t>(lost));
  EXPECT_EQ(kept + lost, 100'000);
}

TEST(RunRecord, ThreadsMayWriteAtOnce) {
  const Scratch scratch;
  RecordWriter writer(scratch.path(), {});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&writer, thread] {
      const std::string name = "value " + std::to_string(thread);
      const std::pair<std::string_view, double> values[] = {{name, 1.0}};
      for (int step = 0; step < 300; ++step) {
        writer.append_values(step, values);
        if (step % 50 == 0) writer.flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.flush();
  RecordReader reader(writer.path());
  int count = 0;
  while (const auto record = reader.next())
    count += std::holds_alternative<Values>(*record) ? 1 : 0;
  EXPECT_EQ(count, 900);
  EXPECT_FALSE(reader.is_damaged());
  EXPECT_EQ(reader.position(), bytes_of(writer.path()).size());
}

}  // namespace
}  // namespace accelerate::run_record
