// Folders in which DeepSpeed keeps its checkpoints: which files belong together.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "files/safetensors/shard_index.h"

namespace accelerate::files {

struct ZeroFiles {
  std::filesystem::path folder{};                         // that of the tag; canonical
  std::vector<std::filesystem::path> optimizer_states{};  // by rank
  // By rank, or that of rank 0 alone, where all ranks have the same (stages 1 and 2).
  std::vector<std::filesystem::path> model_states{};
};

// Whether save_checkpoint() of DeepSpeed wrote into the folder: it has a file `latest` beside the
// folder that this names, or is such a folder.
bool is_deepspeed_folder(const std::filesystem::path& folder);

// The checkpoint of that tag. Without a tag the one that `latest` names, or that of a folder of a
// tag itself.
//
// Throws CheckpointError if there is none, files of a rank are missing, or it is of a kind that
// cannot be put together: with model parallelism or experts, or without ZeRO.
ZeroFiles find_zero_files(const std::filesystem::path& folder, const std::string& tag, Links links);

}  // namespace accelerate::files
