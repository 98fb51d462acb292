#include "tracking/json_lines_tracker.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tracking/json_text.h"
#include "tracking/run_folder.h"

namespace accelerate::tracking {
namespace {

using Json = nlohmann::ordered_json;

// The names under which things other than numbers and texts stand, each with names of its own.
constexpr std::string_view kKindsOfLines[] = {"images", "tables", "histograms", "figures"};

bool is_kind_of_line(std::string_view key) {
  return std::ranges::find(kKindsOfLines, key) != std::end(kKindsOfLines);
}

std::string line_head(const TrackedStep& at) {
  std::string line = "{";
  if (at.step) append_json_member(line, "step", *at.step);
  const double seconds = std::chrono::duration<double>(at.time.time_since_epoch()).count();
  append_json_member(line, "time", seconds);
  return line;
}

std::string line_of_one(const TrackedStep& at, std::string_view kind, std::string_view name) {
  std::string line = line_head(at);
  append_json_key(line, kind);
  line += '{';
  append_json_key(line, name);
  return line;
}

std::string free_name(const std::string& name) {
  const bool is_taken = name == "step" || name == "time" || is_kind_of_line(name) ||
                        name == "config" || name == "project" || name == "artifact";
  return is_taken ? name + '_' : name;
}

void append_json_numbers(std::string& json, std::string_view key,
                         const std::vector<double>& numbers) {
  append_json_key(json, key);
  json += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) json += ',';
    append_json_number(json, numbers[i]);
  }
  json += ']';
}

bool has_cut(const StepCuts& cuts, std::string_view name, int64_t step) {
  return std::ranges::any_of(
      cuts, [&](const auto& cut) { return cut.first == name && step >= cut.second; });
}

// Removes what is cut from a line, and says whether anything is left. `changed` is set if it did.
bool keep_line(Json& line, const StepCuts& cuts, bool& changed) {
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return true;
  const auto at = step->get<int64_t>();
  bool has_values = false;
  for (auto entry = line.begin(); entry != line.end();) {
    const std::string key = entry.key();
    bool gone = false;
    if (key == "step" || key == "time") {
      ++entry;
      continue;
    }
    if (is_kind_of_line(key) && entry->is_object()) {
      for (auto one = entry->begin(); one != entry->end();) {
        if (has_cut(cuts, one.key(), at)) {
          one = entry->erase(one);
          changed = true;
        } else {
          ++one;
        }
      }
      gone = entry->empty();
    } else {
      gone = has_cut(cuts, key, at);
    }
    if (gone) {
      entry = line.erase(entry);
      changed = true;
    } else {
      has_values = true;
      ++entry;
    }
  }
  return has_values;
}

}  // namespace

void JsonLinesTracker::start(const TrackerRun& run) {
  run_ = run;
  folder_ = run.logging_dir / run.project;
  make_folders(folder_);
  if (run.continues) cutter_.begin();
}

// Opened by the first line: a checkpoint may be loaded until then.
OutputFile& JsonLinesTracker::file() {
  if (file_.is_open()) return file_;
  const auto path = folder_ / options_.file_name;
  if (!cutter_.active()) put_aside(path);
  file_ = OutputFile(path, OutputFile::At::kEnd);
  if (!ends_with_line_feed(path)) file_.append("\n");  // a crash has cut the last line off
  file_.append(std::exchange(config_line_, {}));
  return file_;
}

void JsonLinesTracker::write_line(std::string line) {
  line += "}\n";
  file().append(line);
}

void JsonLinesTracker::store_init_configuration(const TrackerConfig& config) {
  std::string line = line_head({.step = {}, .time = std::chrono::system_clock::now()});
  append_json_member(line, "project", run_.project);
  append_json_key(line, "config");
  config_line_ = line + json_object(config) + "}\n";
}

void JsonLinesTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  std::string line = line_head(at);
  for (const NamedValue& value : values) {
    const std::string name = free_name(value.name);
    cutter_.note(name, at.step);
    append_json_member(line, name, value.value);
  }
  write_line(std::move(line));
}

bool JsonLinesTracker::log_images(std::span<const TrackedImage> images, const TrackedStep& at) {
  std::string line = line_head(at);
  append_json_key(line, "images");
  line += '{';
  for (const TrackedImage& image : images) {
    cutter_.note(image.name, at.step);
    append_json_member(line, image.name, store_image(folder_, image, at).string());
  }
  write_line(line + '}');
  return true;
}

bool JsonLinesTracker::log_table(const TrackedTable& table, const TrackedStep& at) {
  cutter_.note(table.name, at.step);
  std::string line = line_of_one(at, "tables", table.name);
  write_line(line + table_json(table) + '}');
  return true;
}

bool JsonLinesTracker::log_histogram(const TrackedHistogram& histogram, const TrackedStep& at) {
  cutter_.note(histogram.name, at.step);
  std::string line = line_of_one(at, "histograms", histogram.name);
  line += '{';
  append_json_member(line, "min", histogram.min);
  append_json_member(line, "max", histogram.max);
  append_json_member(line, "count", histogram.count);
  append_json_member(line, "sum", histogram.sum);
  append_json_member(line, "sum_of_squares", histogram.sum_of_squares);
  append_json_numbers(line, "limits", histogram.limits);
  append_json_numbers(line, "counts", histogram.counts);
  write_line(line + "}}");
  return true;
}

bool JsonLinesTracker::log_figure(const TrackedFigure& figure, const TrackedStep& at) {
  cutter_.note(figure.name, at.step);
  std::string line = line_of_one(at, "figures", figure.name);
  append_json_text(line, store_figure(folder_, figure, at).string());
  write_line(line + '}');
  return true;
}

bool JsonLinesTracker::log_artifact(const TrackedArtifact& artifact) {
  std::string line = line_head({.step = {}, .time = std::chrono::system_clock::now()});
  append_json_member(line, "artifact", store_artifact(folder_, artifact).string());
  write_line(std::move(line));
  return true;
}

void JsonLinesTracker::continue_run() {
  flush();
  cutter_.begin();
}

// What was written in this process before a checkpoint was loaded goes too, so the line that takes
// it away must not be in the file yet: lines wait in memory until flush().
void JsonLinesTracker::take_away(const StepCuts& cuts) {
  const auto path = folder_ / options_.file_name;
  const std::string text = read_file(path);
  std::string kept;
  bool changed = !text.empty() && text.back() != '\n';  // a line that a crash cut off
  std::string_view rest = text;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    bool line_changed = false;
    if (!parsed.is_object()) {
      (kept += line) += '\n';  // not one of ours
      continue;
    }
    const bool stays = keep_line(parsed, cuts, line_changed);
    changed = changed || line_changed || !stays;
    if (!stays) continue;
    kept += line_changed ? parsed.dump() : std::string(line);
    kept += '\n';
  }
  if (changed) write_file(path, kept);
}

void JsonLinesTracker::finish() {
  if (!config_line_.empty()) file();
  flush();
}

void JsonLinesTracker::flush() {
  if (!file_.is_open()) return;
  if (!cutter_.pending().empty()) {
    take_away(cutter_.pending());
    cutter_.set_done();
    file_.reopen();
  }
  file_.flush();
}

}  // namespace accelerate::tracking
