// Offline runs of Weights & Biases, read back by hand.
#include "tracking/wandb_tracker.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <map>
#include <nlohmann/json.hpp>

#include "golden/sha256.h"
#include "tracking/wandb_log.h"
#include "unit/tracking/event_file_reading.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using test::at_step;
using test::log_one;
using test::Message;
using testing::ElementsAre;
using testing::HasSubstr;

// By the description of LevelDB's log format.
std::vector<std::string> records_of(const std::string& file) {
  EXPECT_EQ(file.substr(0, 7), std::string(":W&B\xe1\xbe\0", 7));
  std::vector<std::string> records;
  std::string record;
  for (size_t at = 7; at < file.size();) {
    const size_t left = 32768 - at % 32768;
    if (left < 7) {
      EXPECT_EQ(file.substr(at, left), std::string(left, '\0'));
      at += left;
      continue;
    }
    const auto length = test::number_at<uint16_t>(file, at + 4);
    const char kind = file.at(at + 6);
    const std::string checked = file.substr(at + 6, 1u + length);
    EXPECT_EQ(test::number_at<uint32_t>(file, at),
              crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                    static_cast<uInt>(checked.size())));
    EXPECT_LE(7u + length, left) << "a piece crosses the end of its block";
    record += checked.substr(1);
    if (kind == 1 || kind == 4) records.push_back(std::exchange(record, {}));
    at += 7u + length;
  }
  EXPECT_TRUE(record.empty());
  return records;
}

class WandbRun : public test::TrackedRun {
 protected:
  static std::string file_of(const WandbTracker& tracker) {
    for (const auto& entry : std::filesystem::directory_iterator(tracker.folder())) {
      if (entry.path().extension() == ".wandb") return test::bytes_of_file(entry.path());
    }
    ADD_FAILURE() << "no .wandb file";
    return "";
  }
  // "a.b=1 ..." of each row, without the times.
  static std::vector<std::string> rows_of(const WandbTracker& tracker) {
    std::vector<std::string> rows;
    for (const std::string& record : records_of(file_of(tracker))) {
      const Message message(record);
      if (!message.texts.contains(2)) continue;
      std::string row;
      const Message history = message.message(2);
      for (auto [item, end] = history.texts.equal_range(1); item != end; ++item) {
        const Message field(item->second);
        std::string key;
        for (auto [part, last] = field.texts.equal_range(2); part != last; ++part) {
          key += (key.empty() ? "" : ".") + part->second;
        }
        if (key == "_timestamp" || key == "_runtime") continue;
        row += (row.empty() ? "" : " ") + key + "=" + field.text(16);
      }
      EXPECT_THAT(row, HasSubstr("_step=" + std::to_string(history.message(2).number(1))));
      rows.push_back(row);
    }
    return rows;
  }
};

TEST_F(WandbRun, RecordsOfEverySizeComeBack) {
  std::string file(wandb_file_begin());
  std::vector<std::string> written;
  for (const size_t size : {0, 1, 100, 32740, 5, 32761, 32754, 70000, 3}) {
    written.emplace_back(size, static_cast<char>('a' + written.size()));
    std::string bytes;
    append_wandb_record(bytes, file.size(), written.back());
    file += bytes;
  }
  EXPECT_EQ(records_of(file), written);
  EXPECT_EQ(parse_wandb_records(file), written);
}

TEST_F(WandbRun, BeginsWithTheRunAndItsConfiguration) {
  WandbTracker tracker({.id = "abc",
                        .name = "first",
                        .entity = "team",
                        .group = "g",
                        .job_type = "train",
                        .notes = "n",
                        .tags = {"x", "y"}});
  tracker.start(run());
  tracker.store_init_configuration({{"lr", 0.1}, {"model", "bert"}, {"n", 3}});
  tracker.finish();
  const auto records = records_of(file_of(tracker));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_TRUE(Message(records[0]).has(21));
  const Message of_run = Message(records[1]).message(17);
  EXPECT_EQ(of_run.text(1), "abc");
  EXPECT_EQ(of_run.text(2), "team");
  EXPECT_EQ(of_run.text(3), "demo");
  EXPECT_EQ(of_run.text(6), "g");
  EXPECT_EQ(of_run.text(7), "train");
  EXPECT_EQ(of_run.text(8), "first");
  EXPECT_EQ(of_run.text(9), "n");
  EXPECT_EQ(of_run.texts.count(10), 2U);
  const Message config = Message(records[2]).message(5);
  std::map<std::string, std::string> entries;
  for (const auto& [field, item] : config.texts)
    entries[Message(item).text(1)] = Message(item).text(16);
  const std::map<std::string, std::string> expected = {
      {"lr", "0.1"}, {"model", "\"bert\""}, {"n", "3"}};
  EXPECT_EQ(entries, expected);
  EXPECT_TRUE(Message(records[3]).has(18));
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(Message(records[i]).number(1), i + 1);
}

TEST_F(WandbRun, ValuesOfOneStepAreOneRow) {
  WandbTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"loss", 0.5}});
  log_one(tracker, 1, {{"lr", 0.1}, {"note", "x"}});
  tracker.flush();
  log_one(tracker, 2, {{"losses", TrackedGroup{{"a", 1.0}}}, {"bad", std::nan("")}});
  tracker.log(TrackerConfig{{"after", 1}}, at_step({}));
  tracker.finish();
  EXPECT_THAT(rows_of(tracker), ElementsAre("loss=0.5 lr=0.1 note=\"x\" _step=1",
                                            "losses.a=1.0 bad=NaN _step=2", "after=1 _step=3"));
}

TEST_F(WandbRun, RowIsWrittenBeforeTheProcessMayEnd) {
  WandbTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"loss", 0.5}});
  tracker.flush_before_end();
  EXPECT_THAT(rows_of(tracker), ElementsAre("loss=0.5 _step=1"));
}

TEST_F(WandbRun, EarlierStepIsRefused) {
  WandbTracker tracker({});
  tracker.start(run());
  log_one(tracker, 10, {{"loss", 0.5}});
  EXPECT_THAT(test::error_text<TrackerError>([&] {
                log_one(tracker, 3, {{"epoch_loss", 1}});
              }),
              HasSubstr("step 3 comes after step 10, and steps of Weights & Biases only grow"));
}

TEST_F(WandbRun, ContinuedRunHasItsIdAndGoesOnAfterItsLastStep) {
  std::string id;
  for (const bool continues : {false, true}) {
    WandbTracker tracker({.dir = folder_ / (continues ? "second" : "first")});
    tracker.start(run(continues));
    for (int64_t step = continues ? 2 : 1; step <= (continues ? 4 : 3); ++step) {
      log_one(tracker, step, {{"loss", step}});
    }
    tracker.finish();
    const Message of_run = Message(records_of(file_of(tracker))[1]).message(17);
    if (!continues) {
      id = of_run.text(1);
      EXPECT_FALSE(of_run.has(18));
      continue;
    }
    EXPECT_EQ(of_run.text(1), id);
    EXPECT_EQ(of_run.number(18), 1U) << "resumed";
    EXPECT_EQ(of_run.number(14), 4U) << "its first step";
    EXPECT_THAT(rows_of(tracker), ElementsAre("loss=4 _step=4"));
  }
}

TEST_F(WandbRun, PicturesAndTablesAreFilesThatTheRowNames) {
  WandbTracker tracker({});
  tracker.start(run());
  const TrackedImage image{
      .name = "sample", .height = 1, .width = 2, .channels = 1, .pixels = {1, 2}};
  tracker.log_images(std::span(&image, 1), at_step(1));
  tracker.log_table({.name = "t", .columns = {"a"}, .rows = {{1}}}, at_step(2));
  tracker.log_histogram(
      {.name = "h", .min = 0, .max = 3, .count = 3, .limits = {1, 4}, .counts = {1, 2}},
      at_step(3));
  tracker.finish();
  const auto rows = rows_of(tracker);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0],
              HasSubstr("sample._type=\"image-file\" sample.path=\"media/images/sample_1_"));
  EXPECT_THAT(rows[0], HasSubstr("sample.width=2 sample.height=1 sample.format=\"png\""));
  EXPECT_THAT(rows[1], HasSubstr("t._type=\"table-file\""));
  EXPECT_THAT(rows[1], HasSubstr("t.ncols=1 t.nrows=1"));
  EXPECT_EQ(rows[2], "h._type=\"histogram\" h.values=[1.0,2.0] h.bins=[0.0,1.0,3.0] _step=3");
  const auto tables = std::filesystem::directory_iterator(tracker.folder() / "files/media/table");
  const std::string table = test::bytes_of_file(tables->path());
  EXPECT_EQ(table, R"({"columns":["a"],"data":[[1]]})");
  EXPECT_THAT(rows[1], HasSubstr("t.sha256=\"" + test::sha256_of(table) + "\""));
}

TEST_F(WandbRun, IdThatIsNoNameOfAFolderIsRefused) {
  WandbTracker tracker({.id = "../x"});
  EXPECT_THAT(test::error_text<ConfigError>([&] { tracker.start(run()); }),
              HasSubstr("\"../x\" cannot be the id of a run of Weights & Biases"));
}

}  // namespace
}  // namespace accelerate::tracking
