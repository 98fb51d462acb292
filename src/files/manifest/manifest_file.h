// The manifest of a checkpoint on the disk.
#pragma once

#include <filesystem>

#include "files/durable/system_calls.h"
#include "files/manifest/manifest.h"

namespace accelerate::files {

// Where the checkpoint is that is to be found under `path`, which is absolute and names it: there;
// or, if a save was interrupted while it replaced that checkpoint, under the name that it was given
// meanwhile. Empty if there is no such directory.
std::filesystem::path where_checkpoint_is(const std::filesystem::path& path);

// The same for any path, made absolute. Throws CheckpointError if there is no such directory.
std::filesystem::path find_checkpoint(const std::filesystem::path& directory);

// Reads the manifest in the directory, which is open. Throws CheckpointError if it is missing, a
// link, larger than a manifest can be, or not a good one.
Manifest read_manifest(const UniqueFd& directory, const std::filesystem::path& path);

}  // namespace accelerate::files
