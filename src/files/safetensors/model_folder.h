// The files of a saved model in their folder: their names, and how new ones take the place of old.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "files/durable/staged_file.h"

namespace accelerate::files {

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
//
// Before the last file has its name an error leaves the earlier model as it was; after that the new
// one is there, and an error means that it may not be durable or that earlier files are left. In
// between the folder holds the one or the other, never a mix and never two of which no loader knows
// which is meant. A process that is killed leaves the one, the other, or none: the earlier index is
// out of the way for a moment where the new one is of the other format, and for as long as shards
// take their names where some of these are those of earlier ones. Save into a new folder where that
// is too much.
void publish_model_files(const std::filesystem::path& folder, std::vector<StagedFile>& files);

}  // namespace accelerate::files
