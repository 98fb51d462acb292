#include "transformers/pretrained/weight_files.h"

#include <ATen/ATen.h>

#include <array>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "accelerate/safetensors.h"
#include "base/lfs_pointer.h"
#include "files/safetensors/model_folder.h"
#include "files/safetensors/shard_index.h"
#include "transformers/pretrained/hub_cache.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;

void list_safetensors(const fs::path& path, std::vector<StoredWeight>& tensors) {
  const SafetensorsFile file(path);
  for (const std::string& name : file.names()) {
    const SafetensorsInfo& info = file.info(name);
    // Types that torch lacks are refused when the file is loaded.
    tensors.push_back({.name = name,
                       .shape = info.shape,
                       .dtype = info.scalar_type.value_or(at::ScalarType::Undefined)});
  }
  for (const auto& [alias, name] : file.aliases()) {
    StoredWeight tensor{.name = alias, .shape = file.info(name).shape, .is_alias = true};
    tensor.dtype = file.info(name).scalar_type.value_or(at::ScalarType::Undefined);
    tensors.push_back(std::move(tensor));
  }
}

void list_archive(const fs::path& path, std::vector<StoredWeight>& tensors) {
  std::set<const void*> seen;
  for (const auto& item : load_state_dict(path)) {
    const at::Tensor& tensor = item.value();
    const bool is_first = tensor.numel() == 0 || seen.insert(tensor.data_ptr()).second;
    tensors.push_back({.name = item.key(),
                       .shape = tensor.sizes().vec(),
                       .dtype = tensor.scalar_type(),
                       .is_alias = !is_first});
  }
}

void refuse_lfs_pointer(const fs::path& file) {
  std::array<char, 64> beginning{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(beginning.data(), beginning.size());
  if (!is_lfs_pointer({beginning.data(), static_cast<size_t>(stream.gcount())})) return;
  throw CheckpointError({.what = kLfsPointer, .where = file.string(), .hint = kLfsHint});
}

std::vector<StoredWeight> tensors_of(const fs::path& file) {
  refuse_lfs_pointer(file);
  std::vector<StoredWeight> tensors;
  if (file.extension() == ".safetensors") {
    list_safetensors(file, tensors);
  } else {
    list_archive(file, tensors);
  }
  return tensors;
}

std::vector<StoredWeight> tensors_of_index(const fs::path& path, files::Links links) {
  refuse_lfs_pointer(path);
  const files::ShardIndex index = files::read_shard_index(path, links);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.weight_map) names.insert(file);
  std::vector<StoredWeight> tensors;
  for (const std::string& name : names) {
    for (StoredWeight& tensor : tensors_of(path.parent_path() / name)) {
      // Where two files hold it, the index says which one counts.
      const auto placed = index.weight_map.find(tensor.name);
      if (placed == index.weight_map.end() || placed->second == name) {
        tensors.push_back(std::move(tensor));
      }
    }
  }
  return tensors;
}

}  // namespace

int64_t WeightFiles::elements() const {
  int64_t sum = 0;
  for (const StoredWeight& tensor : tensors) {
    if (!tensor.is_alias) sum += c10::multiply_integers(tensor.shape);
  }
  return sum;
}

std::optional<at::ScalarType> WeightFiles::dtype() const {
  for (const StoredWeight& tensor : tensors) {
    const bool narrow = c10::isFloat8Type(tensor.dtype);
    if (c10::isFloatingType(tensor.dtype) && !narrow) return tensor.dtype;
  }
  return std::nullopt;
}

WeightFiles find_weight_files(const fs::path& folder, bool follow_links) {
  WeightFiles found{.follow_links = follow_links || is_hub_snapshot(folder)};
  const files::Links links = found.follow_links ? files::Links::kFollowed : files::Links::kInside;
  const std::array names{files::kSafetensorsFiles.file(), files::kSafetensorsFiles.index(),
                         files::kArchiveFiles.file(), files::kArchiveFiles.index()};
  for (const std::string& name : names) {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) continue;
    files::check_model_file(folder, name, folder, links);
    found.checkpoint = folder / name;
    found.tensors = name.ends_with(".json") ? tensors_of_index(found.checkpoint, links)
                                            : tensors_of(found.checkpoint);
    return found;
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw CheckpointError({.what = "there are no weights in this folder",
                         .where = folder.string(),
                         .hint = "it needs one of " + list});
}

}  // namespace accelerate::transformers
