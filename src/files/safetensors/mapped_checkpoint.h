// Files of a checkpoint, mapped into memory.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "files/durable/mapped_file.h"

namespace accelerate::files {

// Maps the file; writes to the bytes are seen by this process alone. Throws CheckpointError, with
// `kind` ("the index") as its subject, if the file is missing, unreadable, empty or not a regular
// file.
std::shared_ptr<const MappedFile> map_checkpoint_file(const std::filesystem::path& path,
                                                      const std::string& kind);

}  // namespace accelerate::files
