#include "checkpoint/model_files_publish.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "files/shard_index.h"
#include "files/system_calls.h"

namespace accelerate::checkpoint {
namespace {

namespace fs = std::filesystem;

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw files::system_error("an earlier file cannot be removed", path, error.value());
}

// Of either format, whoever saved them.
std::vector<std::string> model_files(const fs::path& folder) {
  std::vector<std::string> names = files::entry_names(folder);
  std::erase_if(names, [&](const std::string& name) {
    const bool is_ours =
        files::is_model_file(name, kSafetensorsFiles.stem, kSafetensorsFiles.suffix) ||
        files::is_model_file(name, kArchiveFiles.stem, kArchiveFiles.suffix);
    return !is_ours || files::entry_kind(folder / name) == files::EntryKind::kDirectory;
  });
  return names;
}

bool is_entry_point(const std::string& name) {
  return name == kSafetensorsFiles.file() || name == kSafetensorsFiles.index() ||
         name == kArchiveFiles.file() || name == kArchiveFiles.index();
}

}  // namespace

void remove_partial_files(const fs::path& folder) {
  for (const std::string& name : files::entry_names(folder)) {
    if (files::is_partial_file(name, kPartialStem)) remove_file(folder / name);
  }
}

void publish_model_files(const fs::path& folder, std::vector<files::StagedFile>& files) {
  std::vector<std::string> earlier = model_files(folder);
  std::set<std::string> new_names;
  for (const files::StagedFile& file : files) new_names.insert(file.path().filename().string());

  const auto is_replaced_shard = [&](const std::string& name) {
    return new_names.contains(name) && !is_entry_point(name);
  };
  if (std::any_of(earlier.begin(), earlier.end(), is_replaced_shard)) {
    for (const std::string& name : earlier) {
      if (is_entry_point(name)) remove_file(folder / name);
    }
    std::erase_if(earlier, is_entry_point);
    files::sync_directory(folder);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    // All shards are in place before the index that names them.
    if (i + 1 == files.size() && i > 0) files::sync_directory(folder);
    files[i].publish();
  }
  files::sync_directory(folder);
  for (const std::string& name : earlier) {
    if (!new_names.contains(name)) remove_file(folder / name);
  }
  files::sync_directory(folder);
}

}  // namespace accelerate::checkpoint
