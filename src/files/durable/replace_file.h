// Writes a single file so that what is under its name is all of it, or what was there before.
#pragma once

#include <filesystem>
#include <functional>

#include "files/durable/byte_sink.h"

namespace accelerate::files {

// Calls `write`, whose bytes go to a file beside `path` (replace_file-<sixteen digits>.partial),
// then gives that file its name. Durable when it returns. Throws CheckpointError if it cannot be
// done, or what `write` throws: then nothing has changed. Any name that the file system takes will
// do. Partial files that killed processes have left in the folder are removed, if they are a minute
// old and nobody holds them.
void replace_file(const std::filesystem::path& path, const std::function<void(ByteSink&)>& write);

}  // namespace accelerate::files
