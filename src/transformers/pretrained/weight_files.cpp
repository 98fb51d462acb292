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
#include "files/merge/merge_source.h"
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

// Of the types that models have; others are looked at when the folder is loaded.
at::ScalarType type_of(files::TensorDtype dtype) {
  switch (dtype) {
    case files::TensorDtype::kF32:
      return at::kFloat;
    case files::TensorDtype::kF16:
      return at::kHalf;
    case files::TensorDtype::kBF16:
      return at::kBFloat16;
    case files::TensorDtype::kF64:
      return at::kDouble;
    case files::TensorDtype::kI64:
      return at::kLong;
    case files::TensorDtype::kBool:
      return at::kBool;
    default:
      return at::ScalarType::Undefined;
  }
}

void list_shards(const fs::path& folder, files::Links links, std::vector<StoredWeight>& tensors) {
  const files::MergeSource source(folder, {.links = links});
  std::map<std::string, StoredWeight> by_name;
  for (const files::PiecedTensor& tensor : source.tensors()) {
    tensors.push_back({.name = tensor.name,
                       .shape = {tensor.shape.begin(), tensor.shape.end()},
                       .dtype = type_of(tensor.dtype)});
    by_name.emplace(tensor.name, tensors.back());
  }
  for (const auto& [alias, name] : source.aliases()) {
    StoredWeight tensor = by_name.at(name);
    tensor.name = alias;
    tensor.is_alias = true;
    tensors.push_back(std::move(tensor));
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
  if (files::holds_foreign_shards(folder)) {
    found.checkpoint = folder;
    list_shards(folder, links, found.tensors);
    return found;
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw CheckpointError({.what = "there are no weights in this folder",
                         .where = folder.string(),
                         .hint = "it needs one of " + list});
}

}  // namespace accelerate::transformers
