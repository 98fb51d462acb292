// In which format save() writes a file, by its name.
#pragma once

#include <filesystem>

#include "accelerate/model_files.h"

namespace accelerate::checkpoint {

// Whether named tensors become a safetensors file: as the options say, else by the extension.
// Throws UsageError where the two contradict each other.
bool writes_safetensors(const std::filesystem::path& path, const SaveFileOptions& options);

// Throws UsageError for a name that promises safetensors, which hold named tensors and nothing
// else.
void require_archive_name(const std::filesystem::path& path);

}  // namespace accelerate::checkpoint
