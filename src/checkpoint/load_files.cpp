#include <algorithm>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "checkpoint/load_source.h"
#include "checkpoint/model_files_publish.h"
#include "files/shard_index.h"
#include "files/system_calls.h"

namespace accelerate::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

CheckpointFiles files_of_index(const fs::path& path) {
  const files::ShardIndex index = files::read_shard_index(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.weight_map) names.insert(file);
  const std::vector<std::string> sorted(names.begin(), names.end());

  CheckpointFiles found;
  for (const std::string& name : sorted) found.files.push_back(path.parent_path() / name);
  for (const auto& [tensor, file] : index.weight_map) {
    const auto position = std::lower_bound(sorted.begin(), sorted.end(), file) - sorted.begin();
    found.placed.emplace(tensor, static_cast<size_t>(position));
  }
  return found;
}

CheckpointFiles files_of_folder(const fs::path& folder) {
  std::error_code error;
  for (const std::string& name : {kArchiveFiles.file(), kSafetensorsFiles.file()}) {
    if (fs::is_regular_file(folder / name, error)) return {.files = {folder / name}};
  }
  std::vector<std::string> indices = files::entry_names(folder);
  std::erase_if(indices, [](const std::string& name) { return !name.ends_with(".index.json"); });
  if (indices.empty()) {
    refuse(folder,
           "the folder holds no model: no " + kArchiveFiles.file() + ", no " +
               kSafetensorsFiles.file() + " and no *.index.json",
           "name the folder that save_model() wrote, or a file");
  }
  if (indices.size() > 1) {
    std::string all;
    for (const std::string& name : indices) all += (all.empty() ? "" : ", ") + name;
    refuse(folder, "the folder holds more than one index: " + all, "name one of them");
  }
  return files_of_index(folder / indices.front());
}

}  // namespace

CheckpointFiles find_checkpoint_files(const fs::path& checkpoint) {
  std::error_code error;
  if (fs::is_directory(checkpoint, error)) return files_of_folder(checkpoint);
  if (!fs::exists(checkpoint, error)) {
    refuse(checkpoint, "there is no such checkpoint", "check the path");
  }
  if (checkpoint.extension() == ".json") return files_of_index(checkpoint);
  return {.files = {checkpoint}};
}

}  // namespace accelerate::checkpoint
