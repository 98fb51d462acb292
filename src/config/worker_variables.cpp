#include "config/worker_variables.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "base/word_list.h"
#include "config/schema.h"

namespace accelerate::config {
namespace {

bool is_distributed_over_devices(const Settings& settings) {
  return settings.is_on("use_deepspeed") || settings.is_on("use_fsdp") ||
         settings.is_on("use_megatron_lm") || settings.is_on("multi_gpu");
}

bool is_passed(const Setting& setting, const SettingValue& value, const Settings& settings) {
  const auto exceeds_one = [&](const char* name) {
    return settings.is_on("use_parallelism_config") && settings.integer(name).value_or(1) > 1;
  };
  switch (setting.passed) {
    case Passed::kNever:
      return false;
    case Passed::kAlways:
      return true;
    case Passed::kIfGiven:
      return value.is_given();
    case Passed::kIfTrue:
      return settings.is_on(setting.name);
    case Passed::kCpu:
      return settings.is_on(setting.name) || !is_distributed_over_devices(settings);
    case Passed::kExceptDeepspeed:
      return !settings.is_on("use_deepspeed");
    case Passed::kFsdp:
      return settings.is_on("use_fsdp");
    case Passed::kDeepspeed:
      return settings.is_on("use_deepspeed");
    case Passed::kMegatron:
      return settings.is_on("use_megatron_lm");
    case Passed::kFp8:
      return spelled_value(*find_setting("mixed_precision"), settings.text("mixed_precision")) ==
             "fp8";
    case Passed::kParallelism:
      return settings.is_on("use_parallelism_config");
    case Passed::kContextParallel:
      return exceeds_one("parallelism_config_cp_size");
    case Passed::kSequenceParallel:
      return exceeds_one("parallelism_config_sp_size");
  }
  return false;
}

// fp8_override_linear_precision is three variables.
void add_overrides(const SettingValue& value,
                   std::vector<std::pair<std::string, std::string>>& variables) {
  const Setting& one_of_them = *find_setting("fp8_pad_inner_dim");  // spelled alike
  const ValueSource source =
      value.source.kind == ValueSource::kPreset ? ValueSource::kFile : value.source.kind;
  const std::vector<std::string> parts = list_parts(*value.text);
  const char* names[] = {"FPROP", "DGRAD", "WGRAD"};
  for (size_t i = 0; i < parts.size() && i < std::size(names); ++i) {
    variables.emplace_back(std::string("ACCELERATE_FP8_OVERRIDE_") + names[i],
                           spelled_value(one_of_them, parts[i], source));
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> worker_variables(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const Setting* setting : all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (!value.text || !is_passed(*setting, value, settings)) continue;
    if (setting->name != "fp8_override_linear_precision") {
      variables.emplace_back(variable_of(*setting),
                             spelled_value(*setting, *value.text, value.source.kind));
      continue;
    }
    add_overrides(value, variables);
  }
  if (settings.is_on("use_deepspeed")) {
    variables.emplace_back("ACCELERATE_CONFIG_DS_FIELDS", joined(settings.deepspeed_fields, ","));
  }
  return variables;
}

namespace {

// The switch that the settings of a group need; nullptr where they need none.
const char* switch_of(Group group) {
  if (group == Group::kFsdp) return "use_fsdp";
  return group == Group::kDeepspeed ? "use_deepspeed" : nullptr;
}

bool is_switched_off(const Setting& setting, const Settings& settings) {
  const char* needed = switch_of(setting.group);
  return needed != nullptr && setting.name != needed && !settings.is_on(needed);
}

}  // namespace

Effect effect_in(const Setting& setting, const Settings& settings) {
  if (setting.name == "gradient_clipping" && settings.is_on("use_deepspeed")) return Effect::kUsed;
  return is_switched_off(setting, settings) ? Effect::kNone : setting.effect;
}

std::vector<std::string> settings_of_effect(const Settings& settings, Effect effect) {
  std::vector<std::string> names;
  for (const Setting* setting : all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (effect_in(*setting, settings) != effect || !value.is_given() || value.text->empty())
      continue;
    const bool is_off = is_switched_off(*setting, settings);
    if (is_off && value.source.kind == ValueSource::kFile) continue;
    const bool says_nothing = (setting->preset && *value.text == *setting->preset) ||
                              (setting->file_preset && *value.text == *setting->file_preset);
    if (says_nothing) continue;
    const bool is_flag = value.source.kind == ValueSource::kFlag;
    std::string name =
        is_flag ? flag_of(*setting) : std::string(setting->name) + " (" + value.source.where + ")";
    if (is_off) name += ", without --" + std::string(switch_of(setting->group));
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> variable_lines(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) {
    const std::string both = name + value;
    if (name.empty() || value.empty() || both.find_first_of("; <>\n") != std::string::npos)
      continue;
    lines.push_back(name + "=" + value + "\n");
  }
  return lines;
}

}  // namespace accelerate::config
