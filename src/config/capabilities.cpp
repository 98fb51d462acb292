#include "config/capabilities.h"

#include <algorithm>
#include <cctype>

#include "accelerate/errors.h"
#include "config/schema.h"
#include "config/settings.h"

namespace accelerate::config {
namespace {

bool is_same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// A file's distributed_type counts unless a flag or a variable chose another way: what the file
// would have switched on then has another source.
bool is_overruled(const Settings& settings, const CapabilityRow& row) {
  return row.setting == "distributed_type" &&
         settings["multi_gpu"].source.where != settings["distributed_type"].source.where;
}

bool is_value_of_row(const CapabilityRow& row, std::string_view text) {
  return std::any_of(row.values.begin(), row.values.end(),
                     [&](std::string_view value) { return is_same_word(value, text); });
}

bool is_asked_for(const Settings& settings, const CapabilityRow& row) {
  if (row.setting.empty()) return false;
  if (row.values.empty()) return settings.is_on(row.setting);
  return is_value_of_row(row, settings.text(row.setting)) && !is_overruled(settings, row);
}

// Whether the settings have the variable of the row too.
bool is_variable_of_setting(const CapabilityRow& row) {
  const Setting* setting = row.setting.empty() ? nullptr : find_setting(row.setting);
  return setting != nullptr && variable_of(*setting) == row.variable;
}

// Files from before version 0.27 of the Python library call XLA TPU.
bool is_asked_by_old_file(const CapabilityRow& row, const Settings& settings) {
  const SettingValue& type = settings["distributed_type"];
  return row.capability == Capability::kTpu && is_same_word(type.text.value_or(""), "TPU") &&
         settings[row.setting].source.where == type.source.where;
}

}  // namespace

std::optional<Capability> capability_of(Group group) {
  switch (group) {
    case Group::kFsdp:
      return Capability::kFsdp;
    case Group::kDeepspeed:
      return Capability::kDeepspeed;
    case Group::kParallelism:
      return Capability::kMesh;
    case Group::kFp8:
      return Capability::kFp8;
    case Group::kMegatron:
      return Capability::kMegatron;
    case Group::kTpu:
      return Capability::kTpu;
    default:
      return std::nullopt;
  }
}

const CapabilityRow* missing_for(Group group, std::span<const CapabilityRow> rows) {
  const std::optional<Capability> capability = capability_of(group);
  for (const CapabilityRow& row : rows) {
    if (row.capability == capability && !row.is_in_this_build) return &row;
  }
  return nullptr;
}

const CapabilityRow* missing_for(const Setting& setting, std::string_view text,
                                 std::span<const CapabilityRow> rows) {
  for (const CapabilityRow& row : rows) {
    if (!row.is_in_this_build && row.setting == setting.name && is_value_of_row(row, text))
      return &row;
  }
  return missing_for(setting.group, rows);
}

const CapabilityRow* missing_capability(const Settings& settings, WorkerKind workers,
                                        std::span<const CapabilityRow> rows) {
  for (const CapabilityRow& row : rows) {
    if (row.is_in_this_build) continue;
    if (workers == WorkerKind::kPython && row.is_left_to_python) continue;
    if (is_asked_for(settings, row)) return &row;
  }
  return nullptr;
}

std::string refusal_of(const CapabilityRow& row, const Settings& settings) {
  std::string name(row.name);
  if (name.empty()) name = std::string(row.setting) + " " + settings.text(row.setting);
  if (is_asked_by_old_file(row, settings)) {
    name += " (distributed_type TPU, which is called XLA since version 0.27 of the Python library)";
  }
  return name + " is not part of this build";
}

void refuse_missing_capability(const Settings& settings, WorkerKind workers,
                               std::span<const CapabilityRow> rows) {
  const CapabilityRow* row = missing_capability(settings, workers, rows);
  if (row == nullptr) return;
  throw ConfigError({.what = refusal_of(*row, settings),
                     .where = place_of(settings[row->setting].source),
                     .hint = std::string(row->hint)});
}

void refuse_inherited_variables(
    const std::function<std::optional<std::string>(const std::string& name)>& variable,
    std::span<const CapabilityRow> rows) {
  for (const CapabilityRow& row : rows) {
    if (row.is_in_this_build || row.variable.empty() || is_variable_of_setting(row)) continue;
    const std::string name(row.variable);
    const std::string text = variable(name).value_or("");
    const bool is_asked =
        row.values.empty() ? truth_of(text).value_or(false) : is_value_of_row(row, text);
    if (!is_asked) continue;
    throw ConfigError({.what = std::string(row.name) + " is not part of this build",
                       .where = "environment variable " + name,
                       .hint = std::string(row.hint)});
  }
}

}  // namespace accelerate::config
