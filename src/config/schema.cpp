#include "config/schema.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

struct KeyParts {
  std::string_view map;  // "" at the top
  std::string_view key;
};

KeyParts parts_of(std::string_view file_key) {
  const size_t dot = file_key.find('.');
  if (dot == std::string_view::npos) return {"", file_key};
  return {file_key.substr(0, dot), file_key.substr(dot + 1)};
}

bool is_known_in(const Setting& setting, bool sagemaker) {
  if (setting.file_key.empty()) return false;
  if (setting.file_kind == FileKind::kBoth || setting.file_kind == FileKind::kRetired) return true;
  return (setting.file_kind == FileKind::kSagemaker) == sagemaker;
}

// What may be left out before the keys of a map: dynamo_config holds backend or dynamo_backend.
std::string_view optional_prefix(std::string_view map) {
  if (map == "fsdp_config") return "fsdp_";
  if (map == "fp8_config") return "fp8_";
  if (map == "dynamo_config") return "dynamo_";
  return "";
}

// Whether `key` of a file, inside a map with this prefix, means the key `known`.
bool names_key(std::string_view key, std::string_view known, std::string_view prefix) {
  if (known.empty()) return false;
  if (key == known) return true;
  return !prefix.empty() && known.starts_with(prefix) && known.substr(prefix.size()) == key;
}

using FlagTable = std::unordered_map<std::string, const Setting*>;

const FlagTable& flag_table() {
  static const FlagTable table = [] {
    FlagTable flags;
    for (const Setting* setting : all_settings()) {
      if (!setting->has_flag) continue;
      flags.emplace(flag_of(*setting), setting);
      if (!setting->short_flag.empty()) flags.emplace(setting->short_flag, setting);
      if (!setting->negative_flag.empty()) {
        flags.emplace("--" + std::string(setting->negative_flag), setting);
      }
    }
    return flags;
  }();
  return table;
}

std::string with_underscores(std::string_view flag) {
  std::string spelled(flag);
  if (spelled.starts_with("--")) std::replace(spelled.begin() + 2, spelled.end(), '-', '_');
  return spelled;
}

}  // namespace

std::string variable_of(const Setting& setting) {
  if (setting.variable == kNoVariable) return "";
  if (!setting.variable.empty()) return std::string(setting.variable);
  std::string name = "ACCELERATE_";
  for (const char c : setting.name) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string flag_of(const Setting& setting) { return "--" + std::string(setting.name); }

std::string default_of(const Setting& setting) {
  if (setting.preset) return std::string(*setting.preset);
  return std::string(setting.fallback.value_or(setting.decided));
}

std::string placeholder_of(const Setting& setting) {
  if (setting.kind == Kind::kSwitch) return "";
  if (!setting.placeholder.empty()) return std::string(setting.placeholder);
  if (setting.unit == Unit::kSeconds) return "SECONDS";
  switch (setting.kind) {
    case Kind::kInt:
      return "N";
    case Kind::kFloat:
      return "NUMBER";
    case Kind::kBool:
      return "BOOL";
    case Kind::kPath:
      return "PATH";
    case Kind::kList:
      return "LIST";
    case Kind::kChoice:
      return "NAME";
    default:
      return "TEXT";
  }
}

const std::vector<const Setting*>& all_settings() {
  static const std::vector<const Setting*> all = [] {
    std::vector<const Setting*> settings;
    for (const auto table :
         {run_settings(), fsdp_settings(), deepspeed_settings(), compute_settings(),
          megatron_settings(), elsewhere_settings(), file_only_settings()}) {
      for (const Setting& setting : table) settings.push_back(&setting);
    }
    return settings;
  }();
  return all;
}

size_t index_of(const Setting& setting) {
  const auto& all = all_settings();
  return static_cast<size_t>(std::find(all.begin(), all.end(), &setting) - all.begin());
}

const Setting* find_setting(std::string_view name) {
  for (const Setting* setting : all_settings()) {
    if (setting->name == name) return setting;
  }
  return nullptr;
}

const Setting* find_flag(std::string_view flag) {
  const auto found = flag_table().find(with_underscores(flag));
  return found == flag_table().end() ? nullptr : found->second;
}

bool is_negative_flag(const Setting& setting, std::string_view flag) {
  return !setting.negative_flag.empty() &&
         with_underscores(flag) == "--" + std::string(setting.negative_flag);
}

std::vector<std::string> long_flags() {
  std::vector<std::string> flags;
  for (const auto& [flag, setting] : flag_table()) {
    if (flag.starts_with("--")) flags.push_back(flag);
  }
  std::sort(flags.begin(), flags.end());
  return flags;
}

const Setting* find_file_key(std::string_view map, std::string_view key, bool sagemaker) {
  const std::string_view prefix = optional_prefix(map);
  for (const Setting* setting : all_settings()) {
    if (!is_known_in(*setting, sagemaker)) continue;
    const KeyParts parts = parts_of(setting->file_key);
    if (parts.map != map) continue;
    if (names_key(key, parts.key, prefix) || names_key(key, setting->file_alias, prefix)) {
      return setting;
    }
  }
  return nullptr;
}

std::vector<std::string> file_keys(std::string_view map, bool sagemaker) {
  std::vector<std::string> keys;
  for (const Setting* setting : all_settings()) {
    if (!is_known_in(*setting, sagemaker) || setting->file_kind == FileKind::kRetired) continue;
    const KeyParts parts = parts_of(setting->file_key);
    const std::string_view key = map.empty() && !parts.map.empty() ? parts.map : parts.key;
    if (!map.empty() && parts.map != map) continue;
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.emplace_back(key);
  }
  return keys;
}

bool is_map_key(std::string_view key, bool sagemaker) {
  return std::any_of(all_settings().begin(), all_settings().end(), [&](const Setting* setting) {
    return is_known_in(*setting, sagemaker) && parts_of(setting->file_key).map == key;
  });
}

std::string_view title_of(Group group) {
  switch (group) {
    case Group::kProgram:
      return "Program";
    case Group::kProcesses:
      return "Processes";
    case Group::kTraining:
      return "Training";
    case Group::kMachines:
      return "Machines and restarts";
    case Group::kOutput:
      return "Output and end";
    case Group::kConfiguration:
      return "Configuration";
    case Group::kFsdp:
      return "FSDP";
    case Group::kDeepspeed:
      return "DeepSpeed";
    case Group::kParallelism:
      return "Parallelism";
    case Group::kFp8:
      return "fp8";
    case Group::kDynamo:
      return "torch.compile";
    case Group::kMegatron:
      return "Megatron-LM";
    case Group::kTpu:
      return "TPU";
    case Group::kCloud:
      return "Cloud";
    case Group::kFileOnly:
      return "In files only";
  }
  return "";
}

}  // namespace accelerate::config
