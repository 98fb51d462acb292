#include "estimate/model_source.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "accelerate/errors.h"
#include "base/user_folders.h"
#include "files/durable/system_calls.h"
#include "files/safetensors/mapped_checkpoint.h"
#include "files/safetensors/safetensors_header.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::estimate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kConfigName = "config.json";

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

void add_header(const fs::path& path, std::vector<Parameter>& parameters) {
  const auto file = files::map_checkpoint_file(path, "the file of the model");
  for (auto& entry : files::parse_safetensors_header(file->bytes(), path.string()).entries) {
    parameters.push_back(
        {.name = std::move(entry.name), .shape = std::move(entry.shape), .dtype = entry.dtype});
  }
}

std::optional<fs::path> config_beside(const fs::path& path) {
  const fs::path config = path.parent_path() / kConfigName;
  return is_file(config) ? std::optional(config) : std::nullopt;
}

// Weights with the config.json beside them, which nobody named: one that cannot be used tells
// nothing. Where it is needed, for activations, it is read again and refused.
ModelSource weights_at(const fs::path& path) {
  ModelSource source{.origin = path.string(), .config = config_beside(path)};
  if (source.config) source.architecture = named_class(*source.config);
  return source;
}

ModelSource from_weights(const fs::path& path) {
  ModelSource source = weights_at(path);
  add_header(path, source.parameters);
  return source;
}

ModelSource from_index(const fs::path& path) {
  ModelSource source = weights_at(path);
  std::set<std::string> shards;
  // Headers alone are read, and the hub's cache is made of links.
  const auto index = files::read_shard_index(path, files::Links::kFollowed);
  for (const auto& [tensor, file] : index.weight_map) shards.insert(file);
  for (const std::string& shard : shards) add_header(path.parent_path() / shard, source.parameters);
  return source;
}

ModelSource from_config(const fs::path& path) {
  ModelLayout architecture = read_architecture(path);
  return {.origin = path.string(),
          .parameters = std::move(architecture.parameters),
          .config = path,
          .architecture = std::move(architecture.name)};
}

// The one file of weights in a folder where it has no usual name.
std::optional<fs::path> lone_weights(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const std::string& name : files::entry_names(folder)) {
    if (name.ends_with(".safetensors") && is_file(folder / name)) found.push_back(folder / name);
  }
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

ModelSource from_folder(const fs::path& folder) {
  if (is_file(folder / kIndexName)) return from_index(folder / kIndexName);
  if (is_file(folder / kWeightsName)) return from_weights(folder / kWeightsName);
  if (const auto weights = lone_weights(folder)) return from_weights(*weights);
  if (is_file(folder / kConfigName)) return from_config(folder / kConfigName);
  throw CheckpointError(
      {.what = "there is no model in this folder",
       .where = folder.string(),
       .hint = std::string("it needs ") + kWeightsName + ", " + kIndexName + " or " + kConfigName});
}

fs::path hub_cache() {
  return folder_variable("HF_HUB_CACHE").value_or(hugging_face_folder() / "hub");
}

// "org/name" is kept as models--org--name/snapshots/<revision>, and refs/main says which.
std::optional<fs::path> cached_model(const std::string& name) {
  const bool is_plain = std::count(name.begin(), name.end(), '/') <= 1 && !name.empty() &&
                        name.front() != '.' && name.find("/.") == std::string::npos;
  if (!is_plain) return std::nullopt;
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  const fs::path repository = hub_cache() / folder;
  std::string revision;
  std::getline(std::ifstream(repository / "refs" / "main") >> std::ws, revision);
  if (revision.empty() || revision.find('/') != std::string::npos) return std::nullopt;
  const fs::path snapshot = repository / "snapshots" / revision;
  return files::leads_to_directory(snapshot) ? std::optional(snapshot) : std::nullopt;
}

}  // namespace

ModelSource find_model(const std::string& name) {
  const fs::path path = name;
  if (files::leads_to_directory(path)) return from_folder(path);
  if (is_file(path)) {
    if (name.ends_with(".index.json")) return from_index(path);
    if (name.ends_with(".json")) return from_config(path);
    return from_weights(path);
  }
  std::error_code none;
  if (!fs::exists(path, none)) {
    if (const auto snapshot = cached_model(name)) return from_folder(*snapshot);
  }
  throw UsageError({.what = "there is no model " + name,
                    .hint = "name a .safetensors file, its index, a config.json or a folder with "
                            "them; nothing is downloaded, but what the Hugging Face hub's cache "
                            "has is found by its name"});
}

}  // namespace accelerate::estimate
