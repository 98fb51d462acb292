// What a configuration file holds, before anyone asks what it means. YAML and JSON both become it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::config {

struct FileEntry;

struct FileNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text{};        // of a scalar
  std::string older_name{};  // what the file says in place of `text`, if that is out of date
  bool is_string = false;    // quoted: a string whatever it looks like
  int line = 0;              // from 1; 0 where it comes from no file
  std::vector<FileNode> items{};
  std::vector<FileEntry> entries;  // in the order of the file

  // A scalar that is read as what it looks like: a number, true, or else a string.
  static FileNode plain(std::string text);
  static FileNode string(std::string text);
  static FileNode map();

  // In a map; nullptr if there is none.
  const FileNode* find(std::string_view key) const;
  // Puts `value` where `key` is, or at the end.
  void set(std::string_view key, FileNode value);
  void erase(std::string_view key);
};

struct FileEntry {
  std::string key{};
  FileNode value{};
  int line = 0;
};

// "path:7"; the path alone for line 0.
std::string place_in_file(const std::filesystem::path& path, int line);

// Reads YAML, and JSON because it is YAML too. `path` is for messages alone. Throws ConfigError
// with file and line for what is neither, for a key that stands twice, for a second document, for
// tags of Python objects and for text that unfolds to more than a configuration could hold.
FileNode parse_config_text(const std::string& text, const std::filesystem::path& path);

// The same of a file. Throws ConfigError if it cannot be read or is longer than a mebibyte.
FileNode read_config_text(const std::filesystem::path& path);

// As YAML that Python's library reads: keys sorted, one a line, strings quoted only where they
// would be taken for something else.
std::string yaml_text(const FileNode& node);

// As JSON, keys sorted.
std::string json_text(const FileNode& node);

}  // namespace accelerate::config
