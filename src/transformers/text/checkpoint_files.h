// Small files of a checkpoint's folder, read with care: a folder may come from a stranger.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace accelerate::transformers {

inline constexpr size_t kMostBytesOfSettings = size_t{16} << 20;
inline constexpr size_t kMostBytesOfVocabulary = size_t{256} << 20;

// All of the file `name` in `folder`; nothing if there is none. Throws DataError for what is no
// regular file, is longer than `most_bytes`, cannot be read, or is a link that leads out of the
// folder (of the model, where the folder is a snapshot in a cache of the hub).
std::optional<std::string> read_checkpoint_file(const std::filesystem::path& folder,
                                                const char* name, size_t most_bytes);

}  // namespace accelerate::transformers
