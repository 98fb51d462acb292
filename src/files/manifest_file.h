// The manifest of a checkpoint on the disk, and the files that it lists.
#pragma once

#include <filesystem>
#include <vector>

#include "files/manifest.h"
#include "files/system_calls.h"
#include "files/verification.h"

namespace accelerate::files {

// Where the checkpoint is that is to be found under `directory`: there; or, if a save was
// interrupted while it replaced that checkpoint, under the name that it was given meanwhile.
// Absolute. Throws CheckpointError if there is no such directory.
std::filesystem::path find_checkpoint(const std::filesystem::path& directory);

// Reads the manifest in the directory, which is open. Throws CheckpointError if it is missing, a
// link, larger than a manifest can be, or not a good one.
Manifest read_manifest(const Descriptor& directory, const std::filesystem::path& path);

// What is wrong with the files of that manifest.
std::vector<Finding> verify_files(const Descriptor& directory, const std::filesystem::path& path,
                                  const Manifest& manifest, const VerifyOptions& options);

}  // namespace accelerate::files
