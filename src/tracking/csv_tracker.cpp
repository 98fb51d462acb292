#include "tracking/csv_tracker.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "tracking/json_text.h"
#include "tracking/run_folder.h"

namespace accelerate::tracking {
namespace {

constexpr size_t kStepColumn = 0;
constexpr size_t kTimeColumn = 1;

std::string milliseconds_of(const TrackedStep& at) {
  std::array<char, 32> text{};
  const double seconds = std::chrono::duration<double>(at.time.time_since_epoch()).count();
  std::snprintf(text.data(), text.size(), "%.3f", seconds);
  return text.data();
}

std::optional<int64_t> step_of(const CsvRow& row) {
  const std::string& text = row[kStepColumn];
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return step;
}

}  // namespace

void CsvTracker::start(const TrackerRun& run) {
  folder_ = run.logging_dir / run.project;
  make_folders(folder_);
  if (run.continues) cutter_.begin();
}

void CsvTracker::store_init_configuration(const TrackerConfig& config) {
  OutputFile file(folder_ / "hparams.yml", OutputFile::At::kStart);
  file.append(yaml_document(config));
  file.close();
}

// By the first row: a checkpoint may be loaded until then.
void CsvTracker::open() {
  if (file_.is_open()) return;
  const auto path = folder_ / options_.file_name;
  if (!cutter_.active()) put_aside(path);
  const std::string text = read_file(path);
  const auto rows = parse_csv_rows(text);
  const bool is_ours = !rows.empty() && rows.front().size() >= 2 &&
                       rows.front()[kStepColumn] == "step" && rows.front()[kTimeColumn] == "time";
  if (!is_ours) put_aside(path);
  header_ = is_ours ? rows.front() : CsvRow{"step", "time"};
  for (size_t i = kTimeColumn + 1; i < header_.size(); ++i) columns_.emplace(header_[i], i);
  has_new_columns_ = !is_ours;
  is_damaged_ = is_ours && !ends_with_line_feed(path);  // a crash has cut the last row off
  file_ = OutputFile(path, OutputFile::At::kEnd);
}

size_t CsvTracker::column(const std::string& name) {
  const auto found = columns_.find(name);
  if (found != columns_.end()) return found->second;
  header_.push_back(name);
  has_new_columns_ = true;
  return columns_.emplace(name, header_.size() - 1).first->second;
}

void CsvTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  open();
  constexpr size_t kMostRows = 1 << 18;
  if (waiting_.size() >= kMostRows) {
    throw TrackerError({.what = "what was logged is lost: too many rows wait to be written",
                        .where = file_.path().string(),
                        .hint = "make room on the disk"});
  }
  CsvRow row(header_.size());
  if (at.step) row[kStepColumn] = std::to_string(*at.step);
  row[kTimeColumn] = milliseconds_of(at);
  const auto set = [&](std::string name, std::string text) {
    if (name == header_[kStepColumn] || name == header_[kTimeColumn]) name += '_';
    cutter_.note(name, at.step);
    const size_t index = column(name);
    if (index >= row.size()) row.resize(index + 1);
    row[index] = std::move(text);
  };
  for (const NamedValue& value : values) {
    if (const TrackedGroup* group = value.value.group()) {
      for (const auto& [member, number] : *group) {
        set(value.name + '/' + member, plain_text(number));
      }
    } else {
      set(value.name, plain_text(value.value));
    }
  }
  waiting_.push_back(std::move(row));
}

bool CsvTracker::log_images(std::span<const TrackedImage> images, const TrackedStep& at) {
  for (const TrackedImage& image : images) store_image(folder_, image, at);
  return true;
}

bool CsvTracker::log_table(const TrackedTable& table, const TrackedStep& at) {
  store_table(folder_, table, at);
  return true;
}

bool CsvTracker::log_figure(const TrackedFigure& figure, const TrackedStep& at) {
  store_figure(folder_, figure, at);
  return true;
}

bool CsvTracker::log_artifact(const TrackedArtifact& artifact) {
  store_artifact(folder_, artifact);
  return true;
}

void CsvTracker::continue_run() {
  flush();
  cutter_.begin();
}

void CsvTracker::rewrite(const StepCuts& cuts) {
  const auto path = folder_ / options_.file_name;
  std::string kept;
  append_csv_row(kept, header_);
  auto rows = parse_csv_rows(read_file(path));
  for (size_t i = 1; i < rows.size(); ++i) {
    CsvRow& row = rows[i];
    row.resize(header_.size());
    bool has_values = true;
    if (const auto step = step_of(row); step && !cuts.empty()) {
      for (const auto& [name, first] : cuts) {
        const auto found = columns_.find(name);
        if (found != columns_.end() && *step >= first) row[found->second].clear();
      }
      has_values = false;
      for (size_t c = kTimeColumn + 1; c < row.size(); ++c) has_values |= !row[c].empty();
    }
    if (has_values) append_csv_row(kept, row);
  }
  write_file(path, kept);
  file_.reopen();
}

void CsvTracker::flush() {
  if (!file_.is_open() || waiting_.empty()) return;
  const bool is_damaged = std::exchange(is_damaged_, false);
  if (has_new_columns_ || is_damaged || !cutter_.pending().empty()) rewrite(cutter_.pending());
  cutter_.set_done();
  has_new_columns_ = false;
  std::string text;
  for (CsvRow& row : waiting_) {
    row.resize(header_.size());
    append_csv_row(text, row);
  }
  waiting_.clear();
  file_.append(text);
  file_.flush();
}

}  // namespace accelerate::tracking
