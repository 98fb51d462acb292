#include "monitor/server/run_library.h"

#include <algorithm>

namespace accelerate::monitor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kNamesInterval{5};
constexpr size_t kMostListed = 500;

}  // namespace

RunLibrary::RunLibrary(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::canonical(path, error);
  if (error) whole = fs::absolute(path);
  folder_ = whole;
  if (!is_run_folder(whole)) return;
  named_ = whole.filename().string();
  folder_ = whole.parent_path();
}

const std::vector<std::string>& RunLibrary::names() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return names_;
  next_look_ = now + kNamesInterval;
  names_.clear();
  if (is_run_folder(folder_)) {
    names_.push_back(named_);  // a run in a run: its neighbours are its own files
    return names_;
  }
  for (const fs::path& run : runs_in(folder_)) {
    if (names_.size() < kMostListed) names_.push_back(run.filename().string());
  }
  if (!named_.empty() && std::ranges::find(names_, named_) == names_.end()) {
    names_.insert(names_.begin(), named_);
  }
  return names_;
}

std::string RunLibrary::first() {
  if (!named_.empty()) return named_;
  return names().empty() ? "" : names_.front();
}

RunFolder* RunLibrary::find(const std::string& name) {
  const auto found = open_.find(name);
  if (found != open_.end()) {
    found->second.used = ++uses_;
    return found->second.run.get();
  }
  if (std::ranges::find(names(), name) == names_.end()) return nullptr;
  if (open_.size() >= kMostOpen) {
    open_.erase(
        std::ranges::min_element(open_, {}, [](const auto& entry) { return entry.second.used; }));
  }
  auto run = std::make_unique<RunFolder>(folder_ / name);
  run->poll(std::chrono::seconds(2));
  return open_.emplace(name, Open{std::move(run), ++uses_}).first->second.run.get();
}

void RunLibrary::poll() {
  for (auto& [name, open] : open_) open.run->poll();
}

}  // namespace accelerate::monitor
