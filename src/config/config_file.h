// Configuration files: those of Hugging Face Accelerate, of all versions, which this program also
// writes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/file_node.h"
#include "config/setting.h"

namespace accelerate::config {

// A value that stands in a file, checked.
struct FileValue {
  const Setting* setting = nullptr;
  std::string text{};
  int line = 0;
  std::string older_name{};  // what the file says in place of `text`, if that is out of date
};

struct ConfigFile {
  std::filesystem::path path{};
  FileNode document{};                      // with today's keys and choices
  bool is_sagemaker = false;                // for Amazon's service, not for this machine
  std::vector<FileValue> values{};          // in the order of the file; null values are left out
  std::optional<int> asks_for_processes{};  // line that says: num_processes must come from a flag

  // "path:7"
  std::string place(int line) const;
};

// Throws ConfigError with file and line for unknown keys (and the nearest right one) and for wrong
// values.
ConfigFile load_config_file(const std::filesystem::path& path);

// The same of a document that was read already; `path` is for messages.
ConfigFile interpret_config(FileNode document, const std::filesystem::path& path);

// `document` with today's keys in place of those of older versions. Throws ConfigError if it is no
// map or names no distributed_type.
FileNode upgraded_document(FileNode document, const std::filesystem::path& path);

// What `config update` writes: today's keys, and what the file left out as it is understood. Null
// values and empty maps are gone.
FileNode complete_document(const ConfigFile& file);

// What `config default` writes for a machine with so many GPUs.
FileNode default_document(const std::string& mixed_precision, int gpus);

}  // namespace accelerate::config
