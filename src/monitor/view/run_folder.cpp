#include "monitor/view/run_folder.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "base/user_folders.h"

namespace accelerate::monitor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kSuffix = ".rec";
constexpr milliseconds kFilesInterval{500};
// Samples of a machine are written every two seconds.
constexpr seconds kSilence{20};
constexpr size_t kMostFiles = 20'000;

bool is_record_file(const fs::path& path) { return path.extension() == kSuffix; }

fs::file_time_type time_of(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? fs::file_time_type::min() : time;
}

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {}

std::string RunFolder::name() const {
  const std::string name = path_.filename().string();
  return name.empty() ? path_.parent_path().filename().string() : name;
}

void RunFolder::look_for_files() {
  const auto now = steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kFilesInterval;
  std::error_code error;
  for (auto entry = fs::directory_iterator(path_, error);
       !error && entry != fs::directory_iterator() && files_.size() < kMostFiles;
       entry.increment(error)) {
    if (!is_record_file(entry->path())) continue;
    const std::string name = entry->path().filename().string();
    if (files_.contains(name)) continue;
    const int id = static_cast<int>(files_.size()) + 1;
    files_.emplace(name, File{.reader = run_record::RecordReader(entry->path()), .id = id});
  }
}

bool RunFolder::poll(milliseconds budget) {
  look_for_files();
  const auto give_up = steady_clock::now() + budget;
  bool found = false;
  int count = 0;
  for (auto& [name, file] : files_) {
    while (const auto record = file.reader.next()) {
      view_.take(file.id, *record);
      found = true;
      if (++count % 256 == 0 && steady_clock::now() >= give_up) return true;
    }
    if (file.reader.is_damaged() && !file.is_told_damaged) {
      file.is_told_damaged = found = true;
      view_.mark_damaged(name, file.reader.position());
    }
  }
  return found;
}

bool RunFolder::is_silent() const {
  if (view_.state() != RunState::kRunning) return false;
  auto newest = fs::file_time_type::min();
  for (const auto& [name, file] : files_) newest = std::max(newest, time_of(file.reader.path()));
  return newest != fs::file_time_type::min() &&
         fs::file_time_type::clock::now() - newest > kSilence;
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_run_folder(const fs::path& path) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_record_file(entry->path())) return true;
  }
  return false;
}

std::vector<fs::path> runs_in(const fs::path& path) {
  if (is_run_folder(path)) return {path};
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code none;
    if (!entry->is_directory(none) || !is_run_folder(entry->path())) continue;
    found.emplace_back(time_of(entry->path()), entry->path());
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> runs;
  for (auto& [time, run] : found) runs.push_back(std::move(run));
  return runs;
}

fs::path default_runs_folder() {
  return folder_variable("XDG_STATE_HOME").value_or(expanded_path("~/.local/state")) /
         "accelerate" / "runs";
}

fs::path find_run(const std::string& name) {
  const fs::path home = default_runs_folder();
  if (name.empty()) {
    const std::vector<fs::path> runs = runs_in(home);
    if (!runs.empty()) return runs.front();
    throw UsageError({.what = "no run was recorded here yet",
                      .where = home.string(),
                      .hint = "start one with accelerate launch --monitor, or name its folder"});
  }
  for (const fs::path& path : {expanded_path(name), home / name}) {
    const std::vector<fs::path> runs = runs_in(path);
    if (!runs.empty()) return runs.front();
  }
  throw UsageError({.what = "there is no recorded run " + name,
                    .where = expanded_path(name).string() + " and " + (home / name).string(),
                    .hint = "accelerate launch --run_dir DIR records one; without a name the "
                            "newest is meant"});
}

}  // namespace accelerate::monitor
