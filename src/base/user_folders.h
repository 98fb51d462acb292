// Folders of the user that variables name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace accelerate {

// `path` with the user's folder for a ~ that it begins with.
std::filesystem::path expanded_path(const std::string& path);

// The folder that the variable names; nothing where it is unset or empty.
std::optional<std::filesystem::path> folder_variable(const char* name);

// Where Hugging Face's programs keep what they have: HF_HOME, or huggingface in XDG_CACHE_HOME or
// ~/.cache.
std::filesystem::path hugging_face_folder();

}  // namespace accelerate
