#include "config/config_file.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "base/printable_text.h"
#include "config/schema.h"
#include "config/value.h"

namespace accelerate::config {
namespace {

constexpr const char* kSagemaker = "AMAZON_SAGEMAKER";
constexpr size_t kMostOfAKey = 200;  // bytes that a message shows
// What upgraded_document() replaces.
constexpr std::string_view kOlderKeys[] = {"fp16", "dynamo_backend"};

bool is_true(const FileNode* node) {
  return node != nullptr && node->kind == FileNode::Kind::kScalar &&
         truth_of(node->text).value_or(false);
}

bool names_sagemaker(const FileNode& document) {
  const FileNode* environment = document.find("compute_environment");
  return environment != nullptr && environment->text == kSagemaker;
}

// `node` follows from `cause`, which stands in the file.
FileNode at_line_of(const FileNode& cause, FileNode node) {
  node.line = cause.line;
  return node;
}

// Whether the document gives the key a value: null says as little as a key that is not there.
bool has_value(const FileNode& document, std::string_view key) {
  const FileNode* node = document.find(key);
  return node != nullptr && node->kind != FileNode::Kind::kNull;
}

void set_missing(FileNode& document, std::string_view key, FileNode value) {
  if (has_value(document, key)) return;
  document.erase(key);
  document.set(key, std::move(value));
}

[[noreturn]] void refuse_key(const FileEntry& entry, const std::string& map, bool sagemaker,
                             const std::filesystem::path& path) {
  const std::string nearest = nearest_name(entry.key, file_keys(map, sagemaker));
  const std::string inside = map.empty() ? "" : " in " + map;
  throw ConfigError(
      {.what = "configuration files have no key " + printable_text(entry.key, kMostOfAKey) + inside,
       .where = place_in_file(path, entry.line),
       .hint = nearest.empty() ? "accelerate config docs lists the keys" : nearest + "?"});
}

// Before anything is missed: what seems to be missing may be there under a mistyped name.
void refuse_unknown_keys(const FileNode& document, bool sagemaker,
                         const std::filesystem::path& path) {
  for (const FileEntry& entry : document.entries) {
    const bool is_known =
        is_map_key(entry.key, sagemaker) || find_file_key("", entry.key, sagemaker) != nullptr ||
        std::find(std::begin(kOlderKeys), std::end(kOlderKeys), entry.key) != std::end(kOlderKeys);
    if (!is_known) refuse_key(entry, "", sagemaker, path);
  }
}

void spell_choice(FileNode& node, const Setting* setting) {
  if (setting == nullptr || setting->kind != Kind::kChoice) return;
  const auto choice = canonical_choice(*setting, node.text);
  if (node.kind != FileNode::Kind::kScalar || !choice) return;
  const bool differs_by_case = std::equal(
      choice->begin(), choice->end(), node.text.begin(), node.text.end(),
      [](unsigned char a, unsigned char b) { return std::toupper(a) == std::toupper(b); });
  if (!differs_by_case) node.older_name = node.text;
  const bool is_upper = setting->spelling == Spelling::kUpper;
  node.text = is_upper ? spelled_value(*setting, *choice) : *choice;
}

// Spells choices as Python's library writes them, so that nobody else has to know that files may
// say them in any case. What is not a choice is refused by the reader.
void spell_choices(FileNode& document) {
  for (FileEntry& entry : document.entries) {
    if (entry.key == "compute_environment") spell_choice(entry.value, find_setting(entry.key));
  }
  const bool sagemaker = names_sagemaker(document);
  for (FileEntry& entry : document.entries) {
    const bool is_older_key =
        std::find(std::begin(kOlderKeys), std::end(kOlderKeys), entry.key) != std::end(kOlderKeys);
    spell_choice(entry.value,
                 is_older_key ? find_setting(entry.key) : find_file_key("", entry.key, sagemaker));
    for (FileEntry& inner : entry.value.entries) {
      spell_choice(inner.value, find_file_key(entry.key, inner.key, sagemaker));
    }
  }
}

// Walks over a document and checks every value in it.
class Reader {
 public:
  explicit Reader(ConfigFile& file) : file_(file) {}

  void read() {
    for (const FileEntry& entry : file_.document.entries) {
      if (is_map_key(entry.key, file_.is_sagemaker)) {
        read_map(entry);
      } else {
        read_value(entry, "");
      }
    }
  }

 private:
  void read_map(const FileEntry& map) {
    if (map.value.kind == FileNode::Kind::kNull) return;
    if (map.value.kind != FileNode::Kind::kMap) {
      fail(map.key + " holds settings of its own, not one value", map.line);
    }
    for (const FileEntry& entry : map.value.entries) read_value(entry, map.key);
  }

  void read_value(const FileEntry& entry, const std::string& map) {
    const Setting* setting = find_file_key(map, entry.key, file_.is_sagemaker);
    if (setting == nullptr) refuse_key(entry, map, file_.is_sagemaker, file_.path);
    // What is not in the file was put there to complete it, and is nobody's wish.
    if (entry.value.kind == FileNode::Kind::kNull || entry.line == 0) return;
    if (setting->file_kind == FileKind::kSagemaker) return;  // kept, never used here
    const std::optional<std::string> text = text_of(entry.value);
    if (!text || (entry.value.kind == FileNode::Kind::kList && setting->kind != Kind::kList)) {
      fail(entry.key + " holds one value", entry.line);
    }
    if (setting->name == "num_processes" && *text == "-1") {
      file_.asks_for_processes = entry.line;
      return;
    }
    const Source source{ValueSource::kFile, file_.place(entry.line)};
    file_.values.push_back({.setting = setting,
                            .text = checked_value(*setting, *text, source),
                            .line = entry.line,
                            .older_name = entry.value.older_name});
  }

  // A scalar, or the scalars of a list with commas between.
  static std::optional<std::string> text_of(const FileNode& node) {
    if (node.kind == FileNode::Kind::kScalar) return node.text;
    if (node.kind != FileNode::Kind::kList) return std::nullopt;
    std::string text;
    for (const FileNode& item : node.items) {
      if (item.kind != FileNode::Kind::kScalar) return std::nullopt;
      text += (text.empty() ? "" : ",") + item.text;
    }
    return text;
  }

  [[noreturn]] void fail(const std::string& what, int line) const {
    throw ConfigError({.what = what, .where = file_.place(line)});
  }

  ConfigFile& file_;
};

// Python reads an unquoted no as false. Where a name is meant it has to be quoted.
bool is_word_of_truth(const std::string& text) {
  const auto truth = truth_of(text);
  return truth && text != "true" && text != "false" && text != "0" && text != "1" &&
         text != "True" && text != "False";
}

FileNode rewritten(const FileNode& node, const Setting* setting) {
  FileNode result = node;
  if (setting == nullptr || node.kind != FileNode::Kind::kScalar) return result;
  if (node.is_string) return result;
  const bool is_name = setting->kind == Kind::kText || setting->kind == Kind::kChoice ||
                       setting->kind == Kind::kPath;
  if (is_name && is_word_of_truth(node.text)) result.is_string = true;
  if (setting->name == "gpu_ids") result.is_string = true;
  return result;
}

FileNode preset_node(const Setting& setting) {
  const std::string text(*setting.file_preset);
  return setting.kind == Kind::kText || setting.kind == Kind::kChoice ? FileNode::string(text)
                                                                      : FileNode::plain(text);
}

}  // namespace

std::string ConfigFile::place(int line) const { return place_in_file(path, line); }

FileNode upgraded_document(FileNode document, const std::filesystem::path& path) {
  if (document.kind != FileNode::Kind::kMap) {
    throw ConfigError({.what = "the file holds no settings",
                       .where = path.string(),
                       .hint = "write a new one with accelerate config"});
  }
  set_missing(document, "compute_environment", FileNode::string("LOCAL_MACHINE"));
  if (!has_value(document, "distributed_type")) {
    throw ConfigError({.what = "a configuration file must name a distributed_type",
                       .where = path.string(),
                       .hint = "distributed_type: 'NO', or write a new file with "
                               "accelerate config"});
  }
  if (document.find("distributed_type")->text == "NO" && !names_sagemaker(document)) {
    set_missing(document, "num_processes",
                at_line_of(*document.find("distributed_type"), FileNode::plain("1")));
  }
  if (is_true(document.find("fp16"))) {
    set_missing(document, "mixed_precision",
                at_line_of(*document.find("fp16"), FileNode::string("fp16")));
  }
  document.erase("fp16");
  if (const FileNode* backend = document.find("dynamo_backend")) {
    FileNode dynamo = FileNode::map();
    dynamo.line = backend->line;
    if (backend->text != "NO") dynamo.set("dynamo_backend", *backend);
    document.erase("dynamo_backend");
    document.set("dynamo_config", std::move(dynamo));
  }
  for (const char* key : {"use_cpu", "debug", "enable_cpu_affinity"}) {
    set_missing(document, key, FileNode::plain("false"));
  }
  return document;
}

ConfigFile interpret_config(FileNode document, const std::filesystem::path& path) {
  ConfigFile file;
  file.path = path;
  spell_choices(document);
  if (document.kind == FileNode::Kind::kMap) {
    refuse_unknown_keys(document, names_sagemaker(document), path);
  }
  file.document = upgraded_document(std::move(document), path);
  file.is_sagemaker = names_sagemaker(file.document);
  Reader(file).read();
  return file;
}

ConfigFile load_config_file(const std::filesystem::path& path) {
  return interpret_config(read_config_text(path), path);
}

FileNode complete_document(const ConfigFile& file) {
  FileNode complete = FileNode::map();
  for (const FileEntry& entry : file.document.entries) {
    if (entry.value.kind == FileNode::Kind::kNull) continue;
    const bool is_map = is_map_key(entry.key, file.is_sagemaker);
    if (!is_map) {
      complete.set(entry.key,
                   rewritten(entry.value, find_file_key("", entry.key, file.is_sagemaker)));
      continue;
    }
    FileNode map = FileNode::map();
    for (const FileEntry& inner : entry.value.entries) {
      const Setting* setting = find_file_key(entry.key, inner.key, file.is_sagemaker);
      if (setting == nullptr || setting->file_kind == FileKind::kRetired) continue;
      const std::string key(setting->file_key.substr(setting->file_key.find('.') + 1));
      map.set(key, rewritten(inner.value, setting));
    }
    if (!map.entries.empty()) complete.set(entry.key, std::move(map));
  }
  for (const Setting* setting : all_settings()) {
    if (!setting->file_preset || complete.find(setting->file_key) != nullptr) continue;
    const auto known = file_keys("", file.is_sagemaker);
    if (std::find(known.begin(), known.end(), setting->file_key) == known.end()) continue;
    complete.set(setting->file_key, preset_node(*setting));
  }
  return complete;
}

FileNode default_document(const std::string& mixed_precision, int gpus) {
  FileNode document = FileNode::map();
  document.set("distributed_type", FileNode::string(gpus > 1 ? "MULTI_GPU" : "NO"));
  document.set("mixed_precision", FileNode::string(mixed_precision));
  document.set("num_processes", FileNode::plain(std::to_string(std::max(1, gpus))));
  document.set("use_cpu", FileNode::plain(gpus == 0 ? "true" : "false"));
  return complete_document(interpret_config(std::move(document), "default configuration"));
}

}  // namespace accelerate::config
