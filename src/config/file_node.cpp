#include "config/file_node.h"

#include <algorithm>
#include <utility>

namespace accelerate::config {

FileNode FileNode::plain(std::string text) {
  FileNode node;
  node.kind = Kind::kScalar;
  node.text = std::move(text);
  return node;
}

FileNode FileNode::string(std::string text) {
  FileNode node = plain(std::move(text));
  node.is_string = true;
  return node;
}

FileNode FileNode::map() {
  FileNode node;
  node.kind = Kind::kMap;
  return node;
}

const FileNode* FileNode::find(std::string_view key) const {
  for (const FileEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

void FileNode::set(std::string_view key, FileNode value) {
  for (FileEntry& entry : entries) {
    if (entry.key != key) continue;
    entry.value = std::move(value);
    return;
  }
  const int line = value.line;
  entries.push_back({.key = std::string(key), .value = std::move(value), .line = line});
}

void FileNode::erase(std::string_view key) {
  std::erase_if(entries, [&](const FileEntry& entry) { return entry.key == key; });
}

std::string place_in_file(const std::filesystem::path& path, int line) {
  return line > 0 ? path.string() + ":" + std::to_string(line) : path.string();
}

}  // namespace accelerate::config
