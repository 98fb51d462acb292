#include <algorithm>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "checkpoint/model/load_source.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_names.h"
#include "files/merge/merge_source.h"
#include "files/safetensors/model_folder.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::checkpoint {
namespace {

namespace fs = std::filesystem;
using files::kArchiveFiles;
using files::kSafetensorsFiles;

[[noreturn]] void refuse_files(const fs::path& path, const std::string& what,
                               const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

CheckpointFiles files_of_index(const fs::path& path, files::Links links) {
  const files::ShardIndex index = files::read_shard_index(path, links);
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

CheckpointFiles files_of_folder(const fs::path& folder, files::Links links) {
  std::error_code error;
  for (const std::string& name : {kArchiveFiles.file(), kSafetensorsFiles.file()}) {
    if (!fs::is_regular_file(folder / name, error)) continue;
    files::check_model_file(folder, name, folder, links);
    return {.files = {folder / name}};
  }
  std::vector<std::string> indices = files::entry_names(folder);
  std::erase_if(indices, [](const std::string& name) { return !name.ends_with(".index.json"); });
  if (indices.empty() && fs::exists(folder / files::model_pieces_file(0), error)) {
    refuse_files(folder, "the model in this folder is in pieces",
                 "put them together with `accelerate merge-weights`, or use load_state()");
  }
  if (indices.empty() && files::holds_foreign_shards(folder)) {
    return {.files = {folder}, .links = links};
  }
  if (indices.empty()) {
    refuse_files(folder,
                 "the folder holds no model: no " + kArchiveFiles.file() + ", no " +
                     kSafetensorsFiles.file() + " and no *.index.json",
                 "name the folder that save_model() wrote, or a file");
  }
  if (indices.size() > 1) {
    std::string all;
    for (const std::string& name : indices) all += (all.empty() ? "" : ", ") + name;
    refuse_files(folder, "the folder holds more than one index: " + all, "name one of them");
  }
  files::check_model_file(folder, indices.front(), folder, links);
  return files_of_index(folder / indices.front(), links);
}

}  // namespace

CheckpointFiles find_checkpoint_files(const fs::path& checkpoint, files::Links links) {
  std::error_code error;
  if (fs::is_directory(checkpoint, error)) return files_of_folder(checkpoint, links);
  if (!fs::exists(checkpoint, error)) {
    refuse_files(checkpoint, "there is no such checkpoint", "check the path");
  }
  if (checkpoint.extension() == ".json") return files_of_index(checkpoint, links);
  return {.files = {checkpoint}};
}

}  // namespace accelerate::checkpoint
