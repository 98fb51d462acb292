// Where the configuration file lives, and how it is written.
#pragma once

#include <filesystem>
#include <string>

#include "accelerate/errors.h"
#include "config/file_node.h"

namespace accelerate::config {

// What a command made cannot be written: the call was right, the work failed.
class FileWriteError : public Error {
 public:
  explicit FileWriteError(ErrorInfo info) : Error("FileWriteError", std::move(info)) {}
};

// $HF_HOME/accelerate/default_config.yaml; without HF_HOME below $XDG_CACHE_HOME/huggingface, and
// without that below ~/.cache/huggingface. A leading ~ is the home folder.
std::filesystem::path default_config_path();

// `document` as the extension of `path` says: JSON for .json, else YAML.
std::string config_text(const FileNode& document, const std::filesystem::path& path);

// Throws FileWriteError if replace_file() could not write there: a folder that may not be written,
// or something on the way that is none. Writes nothing.
void require_writable(const std::filesystem::path& path);

// Puts `text` in place of what `path` holds, in one step: a reader, also after a power cut, sees
// the old file or the new one. Makes the folders on the way; follows a link. Signals wait
// meanwhile, so that no half of a file is left. Throws FileWriteError that says why it cannot.
void replace_file(const std::filesystem::path& path, const std::string& text);

}  // namespace accelerate::config
