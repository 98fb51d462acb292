// What a folder holds.
#pragma once

#include <filesystem>
#include <vector>

namespace accelerate::launch {

// The entries of `folder`, in no particular order; those before the first error where it cannot be
// read to its end, so none if it does not exist. No throw.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

}  // namespace accelerate::launch
