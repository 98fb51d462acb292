// The files of a saved model in their folder: their names, and how new ones take the place of old.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "files/staged_file.h"

namespace accelerate::checkpoint {

struct ModelFileNames {
  std::string_view stem;
  std::string_view suffix;
  std::string file() const { return std::string(stem).append(suffix); }
  std::string index() const { return file() + ".index.json"; }
};
inline constexpr ModelFileNames kSafetensorsFiles{.stem = "model", .suffix = ".safetensors"};
inline constexpr ModelFileNames kArchiveFiles{.stem = "pytorch_model", .suffix = ".bin"};

// Of files that save_model() has not finished.
inline constexpr std::string_view kPartialStem = "save_model";

// Removes what killed processes have left. Only while no other process saves into the folder.
void remove_partial_files(const std::filesystem::path& folder);

// Gives the files their names, the last of them last: it is the one by which the model is found
// (the only file, or the index). Removes all other files of a saved model. Durable when it returns.
// In between the folder holds what it held or the new model; if new shards take the names of
// earlier ones, first the earlier model is made one that no loader finds.
void publish_model_files(const std::filesystem::path& folder,
                         std::vector<files::StagedFile>& files);

}  // namespace accelerate::checkpoint
