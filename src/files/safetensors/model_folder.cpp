#include "files/safetensors/model_folder.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "base/random_id.h"
#include "files/durable/checksum.h"
#include "files/durable/system_calls.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw system_error("an earlier file cannot be removed", path, error.value());
}

// Of either format, whoever saved them.
std::vector<std::string> model_files(const fs::path& folder) {
  std::vector<std::string> names = entry_names(folder);
  std::erase_if(names, [&](const std::string& name) {
    const bool is_ours = is_model_file(name, kSafetensorsFiles.stem, kSafetensorsFiles.suffix) ||
                         is_model_file(name, kArchiveFiles.stem, kArchiveFiles.suffix);
    return !is_ours || entry_kind(folder / name) == EntryKind::kDirectory;
  });
  return names;
}

bool is_index(const std::string& name) {
  return name == kSafetensorsFiles.index() || name == kArchiveFiles.index();
}

bool is_entry_point(const std::string& name) {
  return name == kSafetensorsFiles.file() || name == kArchiveFiles.file() || is_index(name);
}

// The files of an earlier model that are out of the way while those of a new one take their names.
// Unless commit() was called, all of it is taken back at the end; else they go.
class Replacement {
 public:
  explicit Replacement(fs::path folder) : folder_(std::move(folder)) {}
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (!committed_) {
      take_back();
      return;
    }
    // What an error has kept remove_set_aside() from.
    std::error_code ignored;
    for (const auto& [name, hidden] : aside_) fs::remove(hidden, ignored);
  }

  // Gives those of `names` that are meant and still there names under which no loader finds them,
  // and which the next save removes.
  template <class IsMeant>
  void set_aside(const std::vector<std::string>& names, IsMeant is_meant) {
    for (const std::string& name : names) {
      if (!is_meant(name) || aside_.contains(name)) continue;
      const fs::path hidden = folder_ / partial_name();
      rename_entry(folder_ / name, hidden);
      aside_.emplace(name, hidden);
    }
  }

  void publish(StagedFile& file) {
    file.publish();
    published_.push_back(file.path());
  }

  void commit() { committed_ = true; }

  void remove_set_aside() const {
    for (const auto& [name, hidden] : aside_) remove_file(hidden);
  }

 private:
  static std::string partial_name() {
    return std::string(kPartialStem) + "-" + random_id() + ".partial";
  }

  // Shards before the index that names them. What fails here is less than the error that led here.
  void take_back() noexcept {
    std::error_code ignored;
    for (const fs::path& path : published_) fs::remove(path, ignored);
    for (const bool entry_points : {false, true}) {
      for (const auto& [name, hidden] : aside_) {
        if (is_entry_point(name) == entry_points) fs::rename(hidden, folder_ / name, ignored);
      }
    }
  }

  fs::path folder_;
  std::map<std::string, fs::path> aside_;  // by the name that it had
  std::vector<fs::path> published_;
  bool committed_ = false;
};

}  // namespace

void remove_partial_files(const fs::path& folder) {
  for (const std::string& name : entry_names(folder)) {
    if (is_partial_file(name, kPartialStem)) remove_file(folder / name);
  }
}

void publish_model_files(const fs::path& folder, std::vector<StagedFile>& files) {
  const std::vector<std::string> earlier = model_files(folder);
  std::set<std::string> new_names;
  for (const StagedFile& file : files) new_names.insert(file.path().filename().string());
  const std::string entry_point = files.back().path().filename().string();
  const auto is_replaced_shard = [&](const std::string& name) {
    return new_names.contains(name) && name != entry_point;
  };

  Replacement replacement(folder);
  if (std::ranges::any_of(earlier, is_replaced_shard)) {
    replacement.set_aside(earlier, is_entry_point);
    sync_directory(folder);
    replacement.set_aside(earlier, is_replaced_shard);
  }
  for (size_t i = 0; i + 1 < files.size(); ++i) replacement.publish(files[i]);
  // All shards are in place before the index that names them.
  if (files.size() > 1) {
    sync_directory(folder);
    replacement.set_aside(
        earlier, [&](const std::string& name) { return is_index(name) && name != entry_point; });
  }
  files.back().publish();
  replacement.commit();
  sync_directory(folder);
  for (const std::string& name : earlier) {
    if (!new_names.contains(name)) remove_file(folder / name);
  }
  replacement.remove_set_aside();
  sync_directory(folder);
}

}  // namespace accelerate::files
