// Event files as torch's SummaryWriter and the tracker of the Python library wrote them, byte by
// byte.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "golden/reference_data.h"
#include "tracking/crc32c.h"
#include "tracking/event_records.h"
#include "tracking/tensorboard_tracker.h"
#include "unit/files/safetensors_files.h"
#include "unit/tracking/event_file_reading.h"

namespace accelerate::tracking {
namespace {

namespace fs = std::filesystem;
using Recorded = nlohmann::ordered_json;

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string hex_of(uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

double number_of(const Recorded& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  EXPECT_EQ(text, "nan");
  return std::nan("");
}

TrackedValue value_of(const Recorded& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  TrackedGroup group;
  for (const auto& [name, member] : value.items()) group.emplace_back(name, number_of(member));
  return group;
}

TrackerConfig values_of(const Recorded& object) {
  TrackerConfig values;
  for (const auto& [name, value] : object.items()) {
    values.push_back({.name = name, .value = value_of(value)});
  }
  return values;
}

EventStamp stamp_of_call(const Recorded& call) {
  const Recorded& step = call.at("step");
  return {.wall_time = call.at("wall_time").get<double>(),
          .step = step.is_null() ? 0 : step.get<int64_t>()};
}

void expect_only(const Recorded& call, const std::set<std::string>& known) {
  for (const auto& [key, value] : call.items()) {
    EXPECT_TRUE(known.contains(key)) << "this test does not know " << key;
  }
}

std::string file_of(const Recorded& file) {
  std::string bytes;
  for (const Recorded& record : file.at("records")) {
    bytes += bytes_of_hex(record.at("record_hex").get<std::string>());
  }
  EXPECT_EQ(bytes.size(), file.at("bytes").get<size_t>());
  return bytes;
}

// The only file whose values are not in a folder of their own.
const Recorded& only_file(const Recorded& files) {
  EXPECT_EQ(files.size(), 1U);
  return files.begin().value();
}

// What the names of the recorded files begin with, by which the recorded process is known.
EventFileNames names_like(const Recorded& files, double now) {
  const std::string name = fs::path(files.begin().key()).filename().string();
  const std::string rest = name.substr(name.find(".tfevents.") + 10);
  const size_t host = rest.find('.') + 1;
  const size_t number = rest.rfind('.');
  const size_t process = rest.rfind('.', number - 1) + 1;
  return {.now = [now] { return now; },
          .host = rest.substr(host, process - 1 - host),
          .process = std::stoll(rest.substr(process, number - process))};
}

std::chrono::system_clock::time_point time_of(double seconds) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::duration<double>(seconds)));
}

std::map<std::string, double> session_of(const std::string& event, std::string& texts) {
  std::map<std::string, double> numbers;
  const auto session =
      test::Message(event).message(5).message(1).message(9).message(1).message(2).message(3);
  for (const auto& [field, entry] : session.texts) {
    if (field != 1) continue;
    const test::Message pair(entry);
    const test::Message value = pair.message(2);
    if (value.numbers.contains(2)) numbers[pair.text(1)] = value.real(2);
    if (value.texts.contains(3)) texts += pair.text(1) + "=" + value.text(3) + ";";
  }
  return numbers;
}

// The maps of sessions come in any order; everything else is the same to the byte.
void expect_same_file(const std::string& written, const std::string& recorded) {
  if (written == recorded) return;
  RecordReader ours(written);
  RecordReader theirs(recorded);
  while (true) {
    const auto own = ours.next();
    const auto their = theirs.next();
    ASSERT_EQ(own.has_value(), their.has_value());
    if (!own) break;
    if (*own == *their) continue;
    std::string own_texts;
    std::string their_texts;
    const auto own_numbers = session_of(std::string(*own), own_texts);
    EXPECT_FALSE(own_numbers.empty() && own_texts.empty()) << "a record that is not a session";
    EXPECT_EQ(own_numbers, session_of(std::string(*their), their_texts));
    EXPECT_EQ(own_texts, their_texts);
    EXPECT_EQ(own->size(), their->size());
  }
  EXPECT_TRUE(ours.rest().empty());
}

void expect_same_folder(const fs::path& folder, const Recorded& files) {
  std::set<std::string> written;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) written.insert(entry.path().lexically_relative(folder).string());
  }
  for (const auto& [name, file] : files.items()) {
    SCOPED_TRACE(name);
    ASSERT_EQ(written.erase(name), 1U);
    const std::string bytes = test::bytes_of_file(folder / name);
    if (file.contains("text")) {
      EXPECT_EQ(bytes, file.at("text").get<std::string>());
    } else {
      expect_same_file(bytes, file_of(file));
    }
  }
  EXPECT_TRUE(written.empty()) << "one file too many: " << *written.begin();
}

class TensorBoardFixtures : public test::ScratchFolder {
 protected:
  const Recorded recorded_ = test::load_fixture_in_order("tensorboard.json");
  const double now_ = recorded_.at("wall_time").get<double>();
};

TEST_F(TensorBoardFixtures, EverySectionHasATest) {
  expect_only(recorded_,
              {"about", "versions", "wall_time", "file_name", "three_tiny_records", "crc",
               "scalars", "text", "hparams", "add_scalars", "accelerate_tracker"});
}

TEST_F(TensorBoardFixtures, ChecksumsAreTheRecordedOnes) {
  ASSERT_FALSE(recorded_.at("crc").empty());
  for (const Recorded& recorded : recorded_.at("crc")) {
    const std::string bytes = bytes_of_hex(recorded.at("data_hex").get<std::string>());
    EXPECT_EQ(hex_of(crc32c(bytes)), recorded.at("crc32c").get<std::string>());
    EXPECT_EQ(hex_of(masked_crc32c(bytes)), recorded.at("masked_crc32c").get<std::string>());
  }
}

TEST_F(TensorBoardFixtures, RecordsAreFramedAsRecorded) {
  ASSERT_FALSE(recorded_.at("three_tiny_records").empty());
  for (const Recorded& recorded : recorded_.at("three_tiny_records")) {
    const std::string record = bytes_of_hex(recorded.at("record_hex").get<std::string>());
    RecordReader reader(record);
    const auto event = reader.next();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->size(), recorded.at("length").get<size_t>());
    std::string again;
    append_record(again, *event);
    EXPECT_EQ(again, record);
    const Recorded& fields = recorded.at("event");
    const double time = fields.at("wall_time").get<double>();
    if (fields.contains("file_version")) {
      EXPECT_EQ(*event, version_event(time));
      continue;
    }
    const Recorded& value = fields.at("summary").at("value").at(0);
    const int64_t step = std::stoll(fields.value("step", "0"));
    EXPECT_EQ(*event,
              scalar_event({.wall_time = time, .step = step}, value.at("tag").get<std::string>(),
                           value.at("simple_value").get<double>()));
  }
}

TEST_F(TensorBoardFixtures, ScalarsAreTheRecordedBytes) {
  const Recorded& section = recorded_.at("scalars");
  std::string file;
  append_record(file, version_event(now_));
  for (const Recorded& call : section.at("calls")) {
    expect_only(call, {"tag", "value", "step", "wall_time", "new_style", "double_precision"});
    const bool is_newer = call.value("new_style", false);
    const bool is_double = call.value("double_precision", false);
    append_record(file, scalar_event(stamp_of_call(call), call.at("tag").get<std::string>(),
                                     number_of(call.at("value")),
                                     is_double  ? ScalarKind::kDoubleTensor
                                     : is_newer ? ScalarKind::kFloatTensor
                                                : ScalarKind::kSimple));
  }
  EXPECT_EQ(file, file_of(only_file(section.at("files"))));
}

TEST_F(TensorBoardFixtures, TextsAreTheRecordedBytes) {
  const Recorded& section = recorded_.at("text");
  std::string file;
  append_record(file, version_event(now_));
  for (const Recorded& call : section.at("calls")) {
    expect_only(call, {"tag", "text", "step", "wall_time"});
    append_record(file, text_event(stamp_of_call(call), call.at("tag").get<std::string>(),
                                   call.at("text").get<std::string>()));
  }
  EXPECT_EQ(file, file_of(only_file(section.at("files"))));
}

TEST_F(TensorBoardFixtures, HyperparametersAreTheRecordedEvents) {
  const Recorded& section = recorded_.at("hparams");
  const Recorded& call = section.at("call");
  expect_only(call, {"hparams", "metrics", "run_name", "global_step"});
  const EventStamp stamp{.wall_time = now_, .step = call.at("global_step").get<int64_t>()};
  const TrackerConfig hparams = values_of(call.at("hparams"));
  std::vector<std::string> metrics;
  for (const auto& [name, value] : call.at("metrics").items()) metrics.push_back(name);
  std::string file;
  append_record(file, version_event(now_));
  append_record(file, hparams_experiment_event(stamp, hparams, metrics));
  append_record(file, hparams_start_event(stamp, hparams));
  append_record(file, hparams_end_event(stamp));
  for (const auto& [name, value] : call.at("metrics").items()) {
    append_record(file, scalar_event(stamp, name, number_of(value)));
  }
  bool is_found = false;
  for (const auto& [name, recorded] : section.at("files").items()) {
    if (!name.starts_with(call.at("run_name").get<std::string>() + "/")) continue;
    expect_same_file(file, file_of(recorded));
    is_found = true;
  }
  EXPECT_TRUE(is_found);
}

TEST_F(TensorBoardFixtures, GroupsOfScalarsGoToFoldersOfTheirOwn) {
  const Recorded& section = recorded_.at("add_scalars");
  const Recorded& call = section.at("call");
  expect_only(call, {"main_tag", "values", "step", "wall_time"});
  TensorBoardTracker tracker({}, names_like(section.at("files"), now_));
  tracker.start({.project = "", .logging_dir = folder_});
  const NamedValue group{.name = call.at("main_tag").get<std::string>(),
                         .value = value_of(call.at("values"))};
  tracker.log(std::span(&group, 1), {.step = call.at("step").get<int64_t>(),
                                     .time = time_of(call.at("wall_time").get<double>())});
  tracker.finish();
  expect_same_folder(folder_, section.at("files"));
}

TEST_F(TensorBoardFixtures, TheTrackerWritesTheRecordedFolder) {
  const Recorded& section = recorded_.at("accelerate_tracker");
  expect_only(section, {"project", "config", "log_calls", "files"});
  TensorBoardTracker tracker({}, names_like(section.at("files"), now_));
  tracker.start({.project = section.at("project").get<std::string>(), .logging_dir = folder_});
  tracker.store_init_configuration(values_of(section.at("config")));
  for (const Recorded& call : section.at("log_calls")) {
    expect_only(call, {"values", "step"});
    TrackedStep at{.step = {}, .time = time_of(now_)};
    if (!call.at("step").is_null()) at.step = call.at("step").get<int64_t>();
    tracker.log(values_of(call.at("values")), at);
  }
  tracker.finish();
  expect_same_folder(folder_, section.at("files"));
}

}  // namespace
}  // namespace accelerate::tracking
