// The one file that knows yaml-cpp.
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "config/file_node.h"

namespace accelerate::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 16;
constexpr int kMaxNodes = 20'000;  // an alias counts each time that it is unfolded

class Converter {
 public:
  explicit Converter(const std::filesystem::path& path) : path_(path) {}

  FileNode convert(const YAML::Node& node, int depth = 0) {
    FileNode result;
    result.line = node.Mark().line + 1;
    if (++nodes_ > kMaxNodes || depth > kMaxDepth) {
      fail("the file holds more than a configuration could", result.line);
    }
    check_tag(node, result.line);
    switch (node.Type()) {
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
      case YAML::NodeType::Scalar:
        result.kind = FileNode::Kind::kScalar;
        result.text = node.Scalar();
        result.is_string = node.Tag() != "?";
        break;
      case YAML::NodeType::Sequence:
        result.kind = FileNode::Kind::kList;
        for (const YAML::Node& item : node) result.items.push_back(convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        result.kind = FileNode::Kind::kMap;
        for (const auto& pair : node) add_entry(result, pair.first, pair.second, depth);
        break;
    }
    return result;
  }

 private:
  void add_entry(FileNode& map, const YAML::Node& key, const YAML::Node& value, int depth) {
    const int line = key.Mark().line + 1;
    if (!key.IsScalar()) fail("a key must be a word", line);
    if (map.find(key.Scalar()) != nullptr) {
      fail("the key " + printable_text(key.Scalar()) + " stands in the file twice", line);
    }
    map.entries.push_back({.key = key.Scalar(), .value = convert(value, depth + 1), .line = line});
  }

  void check_tag(const YAML::Node& node, int line) const {
    const std::string& tag = node.Tag();
    if (tag.empty() || tag == "?" || tag == "!" || tag.starts_with("tag:yaml.org,2002:str")) return;
    if (tag.starts_with("tag:yaml.org,2002:python/tuple"))
      return;  // a list, written by older files
    fail("a value is tagged " + printable_text(tag) + ", which configuration files cannot have",
         line);
  }

  [[noreturn]] void fail(const std::string& what, int line) const {
    throw ConfigError({.what = what, .where = place_in_file(path_, line)});
  }

  const std::filesystem::path& path_;
  int nodes_ = 0;
};

// By its mark, "---" at the beginning of a line after anything but comments: YAML::LoadAll() finds
// documents without end in some texts.
void refuse_second_document(const std::string& text, const std::filesystem::path& path) {
  std::istringstream lines(text);
  bool begun = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const bool is_mark = line.starts_with("---") && line.find_first_not_of(" \t\r", 3) != 3;
    if (is_mark && begun) {
      throw ConfigError({.what = "the file holds a second document after ---; one is taken",
                         .where = place_in_file(path, number),
                         .hint = "make it a file of its own"});
    }
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] != '#' && line[first] != '%') begun = true;
  }
}

}  // namespace

FileNode parse_config_text(const std::string& text, const std::filesystem::path& path) {
  try {
    refuse_second_document(text, path);
    return Converter(path).convert(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    throw ConfigError({.what = "the file is not valid YAML: " + printable_text(error.msg),
                       .where = place_in_file(path, error.mark.line + 1)});
  }
}

FileNode read_config_text(const std::filesystem::path& path) {
  std::error_code no_file;
  if (std::filesystem::is_directory(path, no_file)) {
    throw ConfigError({.what = "'" + path.string() + "' is a folder, not a configuration file",
                       .hint = "name a file in it"});
  }
  if (!std::filesystem::is_regular_file(path, no_file)) {
    throw ConfigError({.what = "there is no configuration file '" + path.string() + "'",
                       .hint = "name an existing file, or write one with accelerate config"});
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open()) {
    throw ConfigError({.what = std::string("the file cannot be read: ") + std::strerror(errno),
                       .where = path.string()});
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxBytes) {
    throw ConfigError({.what = "the file is larger than 1 MiB, which no configuration file is",
                       .where = path.string()});
  }
  return parse_config_text(text, path);
}

}  // namespace accelerate::config
