#include "tracking/wandb_tracker.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/host_name.h"
#include "base/library_version.h"
#include "base/random_id.h"
#include "tracking/json_text.h"
#include "tracking/png.h"
#include "tracking/run_folder.h"
#include "tracking/sha256.h"
#include "tracking/wandb_log.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;

// Of wandb_internal.proto: what a Record holds.
constexpr uint32_t kRecordHistory = 2;
constexpr uint32_t kRecordSummary = 3;
constexpr uint32_t kRecordConfig = 5;
constexpr uint32_t kRecordFiles = 6;
constexpr uint32_t kRecordRun = 17;
constexpr uint32_t kRecordExit = 18;
constexpr uint32_t kRecordHeader = 21;

// The oldest version of the package that reads such files.
constexpr std::string_view kOldestReader = "0.13.0";

constexpr auto kRowPatience = 1000ms;

double seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// W&B reads what Python's json module writes: NaN and infinity without quotes.
std::string wandb_json(const TrackedValue& value) {
  const auto* real = std::get_if<double>(&value.get());
  if (real != nullptr && !std::isfinite(*real)) return plain_text(value);
  std::string json;
  append_json_value(json, value);
  return json;
}

std::string json_text_of(std::string_view text) {
  std::string json;
  append_json_text(json, text);
  return json;
}

std::string json_numbers(const std::vector<double>& numbers) {
  std::string json = "[";
  for (const double number : numbers) {
    if (json.back() != '[') json += ',';
    append_json_number(json, number);
  }
  return json + ']';
}

std::string new_run_id() {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t bits = random_bits();
  std::string id;
  for (int i = 0; i < 8; ++i, bits /= kLetters.size()) id += kLetters[bits % kLetters.size()];
  return id;
}

std::string time_in_name() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
  return text.data();
}

// The last step of the history of a file.
std::optional<int64_t> last_step_of(const std::filesystem::path& path) {
  std::optional<int64_t> last;
  for (const std::string& record : parse_wandb_records(read_file(path))) {
    ProtobufReader fields(record);
    while (const auto field = fields.next()) {
      if (field->number != kRecordHistory || field->type != WireType::kBytes) continue;
      ProtobufReader history(field->bytes);
      while (const auto part = history.next()) {
        if (part->number != 2 || part->type != WireType::kBytes) continue;
        int64_t step = 0;
        ProtobufReader number(part->bytes);
        while (const auto value = number.next()) step = static_cast<int64_t>(value->value);
        last = std::max(step, last.value_or(step));
      }
    }
  }
  return last;
}

std::string media_item_name(std::string_view folder, const std::string& name, const TrackedStep& at,
                            std::string_view bytes, std::string_view extension) {
  constexpr size_t kDigestDigits = 20;
  std::string path = "media/" + std::string(folder) + '/' + file_name_of(name);
  if (at.step) path += '_' + std::to_string(*at.step);
  return path + '_' + sha256(bytes).substr(0, kDigestDigits) + '.' + std::string(extension);
}

}  // namespace

void WandbTracker::start(const TrackerRun& run) {
  std::filesystem::path root = options_.dir;
  if (root.empty()) root = environment_variable("WANDB_DIR").value_or("");
  if (root.empty()) root = run.logging_dir;
  std::string id = options_.id;
  if (id.empty()) id = environment_variable("WANDB_RUN_ID").value_or("");
  const auto note = run.logging_dir / run.project / "wandb_run.json";
  if (run.continues && !run.logging_dir.empty()) {
    const auto json = nlohmann::json::parse(read_file(note), nullptr, /*allow_exceptions=*/false);
    const std::string before = json.is_object() ? json.value("id", "") : "";
    if (!before.empty() && (id.empty() || id == before)) {
      id = before;
      last_step_ = last_step_of(json.value("file", ""));
      skips_ = true;
    }
  }
  if (id.empty()) id = new_run_id();
  const bool is_safe = id == file_name_of(id) && id.size() <= 128;
  if (!is_safe) {
    throw ConfigError(
        {.what = "\"" + id + "\" cannot be the id of a run of Weights & Biases",
         .where = options_.id.empty() ? "environment variable WANDB_RUN_ID" : "WandbOptions::id",
         .hint = "use letters, digits, - and _"});
  }
  folder_ =
      std::filesystem::absolute(root) / "wandb" / ("offline-run-" + time_in_name() + '-' + id);
  make_folders(folder_ / "files");
  make_folders(folder_ / "logs");
  file_ = OutputFile(folder_ / ("run-" + id + ".wandb"), OutputFile::At::kStart);
  file_.append(wandb_file_begin());
  stream_ = id;
  begin_seconds_ = seconds_of(std::chrono::system_clock::now());
  write_record(kRecordHeader,
               ProtobufMessage().message(
                   1, ProtobufMessage().text(1, library_version()).text(2, kOldestReader)));
  write_run(run, id, skips_);
  if (!run.logging_dir.empty()) {
    write_file(note, json_object({{"id", id}, {"file", file_.path().string()}}) + '\n');
  }
  file_.flush();
}

void WandbTracker::write_run(const TrackerRun& run, const std::string& id, bool resumed) {
  ProtobufMessage record;
  record.text(1, id);
  if (!options_.entity.empty()) record.text(2, options_.entity);
  record.text(3, run.project);
  if (!options_.group.empty()) record.text(6, options_.group);
  if (!options_.job_type.empty()) record.text(7, options_.job_type);
  if (!options_.name.empty()) record.text(8, options_.name);
  if (!options_.notes.empty()) record.text(9, options_.notes);
  for (const std::string& tag : options_.tags) record.text(10, tag);
  record.text(13, host_name());
  if (last_step_) record.integer(14, *last_step_ + 1);
  ProtobufMessage begin;
  begin.integer(1, static_cast<int64_t>(begin_seconds_));
  begin.integer(2, static_cast<int64_t>(std::fmod(begin_seconds_, 1.0) * 1e9));
  record.message(17, begin);
  if (resumed) record.varint(18, 1);
  write_record(kRecordRun, record);
}

void WandbTracker::write_record(uint32_t kind, const ProtobufMessage& content) {
  constexpr uint32_t kRecordNumber = 1;
  constexpr uint32_t kRecordInfo = 200;
  ProtobufMessage record;
  record.integer(kRecordNumber, next_number_++);
  record.message(kind, content);
  record.message(kRecordInfo, ProtobufMessage().text(1, stream_));
  std::string bytes;
  append_wandb_record(bytes, file_.size(), record.bytes());
  file_.append(bytes);
}

void WandbTracker::store_init_configuration(const TrackerConfig& config) {
  ProtobufMessage update;
  for (const NamedValue& entry : config) {
    update.message(1, ProtobufMessage().text(1, entry.name).text(16, wandb_json(entry.value)));
  }
  write_record(kRecordConfig, update);
}

bool WandbTracker::begin_row(const TrackedStep& at) {
  const int64_t step = at.step ? *at.step : last_step_ ? *last_step_ + 1 : 0;
  const bool is_later = !last_step_ || step > *last_step_;
  if (skips_ && !is_later && !has_row_) return false;
  if (last_step_ && step < *last_step_) {
    throw TrackerError(
        {.what = "step " + std::to_string(step) + " comes after step " +
                 std::to_string(*last_step_) + ", and steps of Weights & Biases only grow",
         .where = "log",
         .hint = "log these values under the step that counts everything, with a counter of "
                 "their own beside them"});
  }
  if (is_later) {
    write_row();
    skips_ = false;
  }
  has_row_ = true;
  last_step_ = step;
  row_seconds_ = seconds_of(at.time);
  row_changed_ = std::chrono::steady_clock::now();
  return true;
}

void WandbTracker::add_item(std::vector<std::string> key, std::string json) {
  const auto same = std::ranges::find(row_, key, &Item::first);
  if (same != row_.end()) {
    same->second = std::move(json);
  } else {
    row_.emplace_back(std::move(key), std::move(json));
  }
}

void WandbTracker::write_row() {
  if (!has_row_) return;
  has_row_ = false;
  add_item({"_timestamp"}, wandb_json(row_seconds_));
  add_item({"_runtime"}, wandb_json(row_seconds_ - begin_seconds_));
  add_item({"_step"}, std::to_string(*last_step_));
  ProtobufMessage summary;
  ProtobufMessage history;
  for (const auto& [key, json] : std::exchange(row_, {})) {
    ProtobufMessage item;
    for (const std::string& part : key) item.text(2, part);
    item.text(16, json);
    summary.message(1, item);
    history.message(1, item);
  }
  history.message(2, ProtobufMessage().integer(1, *last_step_));
  write_record(kRecordSummary, summary);
  write_record(kRecordHistory, history);
}

void WandbTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  if (!begin_row(at)) return;
  for (const NamedValue& value : values) {
    if (const TrackedGroup* group = value.value.group()) {
      for (const auto& [member, number] : *group) {
        add_item({value.name, member}, wandb_json(number));
      }
    } else {
      add_item({value.name}, wandb_json(value.value));
    }
  }
}

void WandbTracker::store_media(const std::string& path, std::string_view bytes) {
  OutputFile file(folder_ / "files" / path, OutputFile::At::kStart);
  file.append(bytes);
  file.close();
  write_record(kRecordFiles, ProtobufMessage().message(1, ProtobufMessage().text(1, path)));
}

void WandbTracker::add_file_item(const std::string& name, const char* kind, const std::string& path,
                                 std::string_view bytes) {
  store_media(path, bytes);
  add_item({name, "_type"}, json_text_of(kind));
  add_item({name, "path"}, json_text_of(path));
  add_item({name, "sha256"}, json_text_of(sha256(bytes)));
  add_item({name, "size"}, std::to_string(bytes.size()));
}

bool WandbTracker::log_images(std::span<const TrackedImage> images, const TrackedStep& at) {
  if (!begin_row(at)) return true;
  for (const TrackedImage& image : images) {
    const std::string png = png_of(image);
    add_file_item(image.name, "image-file", media_item_name("images", image.name, at, png, "png"),
                  png);
    add_item({image.name, "width"}, std::to_string(image.width));
    add_item({image.name, "height"}, std::to_string(image.height));
    add_item({image.name, "format"}, "\"png\"");
  }
  return true;
}

bool WandbTracker::log_table(const TrackedTable& table, const TrackedStep& at) {
  if (!begin_row(at)) return true;
  const std::string json = table_json(table);
  add_file_item(table.name, "table-file",
                media_item_name("table", table.name, at, json, "table.json"), json);
  add_item({table.name, "ncols"}, std::to_string(table.columns.size()));
  add_item({table.name, "nrows"}, std::to_string(table.rows.size()));
  return true;
}

// W&B takes 512 buckets at most, and their limits from the first to the last.
bool WandbTracker::log_histogram(const TrackedHistogram& histogram, const TrackedStep& at) {
  if (!begin_row(at)) return true;
  constexpr size_t kMostBuckets = 512;
  const size_t together = (histogram.counts.size() + kMostBuckets - 1) / kMostBuckets;
  std::vector<double> limits = {histogram.min};
  std::vector<double> counts;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    if (i % together == 0) {
      counts.push_back(0);
      limits.push_back(0);
    }
    counts.back() += histogram.counts[i];
    limits.back() = std::clamp(histogram.limits[i], histogram.min, histogram.max);
  }
  add_item({histogram.name, "_type"}, "\"histogram\"");
  add_item({histogram.name, "values"}, json_numbers(counts));
  add_item({histogram.name, "bins"}, json_numbers(limits));
  return true;
}

bool WandbTracker::log_figure(const TrackedFigure& figure, const TrackedStep& at) {
  const bool is_picture = figure.extension == "png" || figure.extension == "svg";
  const bool is_page = figure.extension == "html";
  if (!is_picture && !is_page && figure.extension != "json") return false;
  if (!begin_row(at)) return true;
  const char* folder = is_picture ? "images" : is_page ? "html" : "plotly";
  const char* kind = is_picture ? "image-file" : is_page ? "html-file" : "plotly-file";
  const std::string extension = figure.extension == "json" ? "plotly.json" : figure.extension;
  add_file_item(figure.name, kind,
                media_item_name(folder, figure.name, at, figure.bytes, extension), figure.bytes);
  if (is_picture) add_item({figure.name, "format"}, json_text_of(figure.extension));
  return true;
}

bool WandbTracker::log_artifact(const TrackedArtifact& artifact) {
  const auto place = "artifacts" / artifact_path(artifact);
  copy_artifact(artifact.path, folder_ / "files" / place);
  ProtobufMessage files;
  const auto add = [&](const std::filesystem::path& path) {
    files.message(1, ProtobufMessage().text(1, path.string()));
  };
  std::error_code error;
  if (std::filesystem::is_directory(artifact.path, error)) {
    const auto root = folder_ / "files";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / place, error)) {
      if (entry.is_regular_file()) add(entry.path().lexically_relative(root));
    }
  } else {
    add(place);
  }
  write_record(kRecordFiles, files);
  return true;
}

void WandbTracker::continue_run() {
  write_row();
  skips_ = true;
}

void WandbTracker::flush() {
  if (has_row_ && std::chrono::steady_clock::now() - row_changed_ >= kRowPatience) write_row();
  if (file_.is_open()) file_.flush();
}

void WandbTracker::flush_before_end() {
  write_row();
  if (file_.is_open()) file_.flush();
}

void WandbTracker::finish() {
  write_row();
  const double runtime = seconds_of(std::chrono::system_clock::now()) - begin_seconds_;
  write_record(kRecordExit, ProtobufMessage().integer(2, static_cast<int64_t>(runtime)));
  file_.close();
}

}  // namespace accelerate::tracking
