#include "config/capabilities.h"

#include <algorithm>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "config/capability_variables.h"
#include "config/schema.h"
#include "config/settings.h"

namespace accelerate::config {
namespace {

// A file's distributed_type counts unless a flag or a variable chose another way: what the file
// would have switched on then has another source.
bool is_overruled(const Settings& settings, const CapabilityRow& row) {
  if (row.setting != "distributed_type") return false;
  if (row.capability == Capability::kOtherDevices) {
    return settings["multi_gpu"].source.where != settings["distributed_type"].source.where;
  }
  // Types that only SageMaker knows switch on nothing.
  const auto is_chosen_outside = [&](const char* way) {
    return settings.is_on(way) && settings[way].source.kind != ValueSource::kFile;
  };
  return is_chosen_outside("multi_gpu") || is_chosen_outside("cpu");
}

bool is_one_of_types(std::span<const std::string_view> types, std::string_view text) {
  return std::find(types.begin(), types.end(), text) != types.end();
}

bool is_value_of_row(const CapabilityRow& row, std::string_view text) {
  return is_one_of_types(row.values, text);
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

}  // namespace

std::optional<Capability> capability_of_type(std::string_view distributed_type) {
  if (distributed_type == "FSDP") return Capability::kFsdp;
  if (distributed_type == "DEEPSPEED") return Capability::kDeepspeed;
  if (distributed_type == "MEGATRON_LM") return Capability::kMegatron;
  if (distributed_type == "XLA") return Capability::kTpu;
  if (is_one_of_types(kOtherDeviceTypes, distributed_type)) return Capability::kOtherDevices;
  if (is_one_of_types(kParallelTypes, distributed_type)) return Capability::kSagemaker;
  return std::nullopt;
}

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
    const bool is_for_python = workers == WorkerKind::kPython;
    if (is_for_python && row.is_left_to_python) continue;
    // Python's workers on TPUs are started in another way, which this launcher does not know.
    if (row.is_in_this_build && (!is_for_python || row.capability != Capability::kTpu)) continue;
    if (is_asked_for(settings, row)) return &row;
  }
  return nullptr;
}

std::string refusal_of(const CapabilityRow& row, const Settings& settings) {
  std::string name(row.name);
  if (name.empty()) name = std::string(row.setting) + " " + settings.text(row.setting);
  // Files from before version 0.27 of the Python library call XLA TPU.
  if (const std::string& older = settings[row.setting].source.older_name; !older.empty()) {
    name += " (distributed_type " + printable_text(older) +
            ", which is called XLA since version 0.27 of the Python library)";
  }
  return name + " is not part of this build";
}

void refuse_missing_capability(const Settings& settings, WorkerKind workers,
                               std::span<const CapabilityRow> rows) {
  const CapabilityRow* row = missing_capability(settings, workers, rows);
  if (row == nullptr) return;
  if (row->is_in_this_build) {
    throw ConfigError({.what = std::string(row->name) + " is for native programs here",
                       .where = place_of(settings[row->setting].source),
                       .hint = "start a Python program with Python's own launcher"});
  }
  throw ConfigError({.what = refusal_of(*row, settings),
                     .where = place_of(settings[row->setting].source),
                     .hint = std::string(row->hint)});
}

void refuse_inherited_variables(const VariableLookup& lookup, const Settings& settings,
                                WorkerKind workers, std::span<const CapabilityRow> rows) {
  for (const CapabilityRow& row : rows) {
    if (workers == WorkerKind::kPython && row.is_left_to_python) continue;
    if (is_variable_of_setting(row)) continue;
    refuse_variable_of(row, lookup, settings.is_on("cpu"));
  }
}

}  // namespace accelerate::config
