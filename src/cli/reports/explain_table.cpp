#include "cli/reports/explain_table.h"

#include <algorithm>
#include <vector>

#include "config/capabilities.h"
#include "config/schema.h"
#include "config/worker_variables.h"

namespace accelerate::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingValue;
using config::ValueSource;

// Longer ones are whole, but do not push the others to the right.
constexpr size_t kWidestName = 32;
constexpr size_t kWidestValue = 20;

struct Row {
  std::string name;
  std::string value;
  std::string source;
};

std::string shown_value(const Setting& setting, const SettingValue& value) {
  if (value.text && !value.text->empty()) return setting.is_secret ? "(secret)" : *value.text;
  if (setting.fallback) return std::string(*setting.fallback);
  return setting.decided.empty() ? "none" : "(" + std::string(setting.decided) + ")";
}

bool is_set(const SettingValue& value) {
  return value.is_given() || value.source.kind == ValueSource::kDetected;
}

std::string shown_source(const Setting& setting, const config::Settings& settings) {
  const SettingValue& value = settings.of(setting);
  std::string text;
  switch (value.source.kind) {
    case ValueSource::kFlag:
    case ValueSource::kFile:
    case ValueSource::kVariable:
      text = value.source.where;
      break;
    case ValueSource::kDetected:
      text = "detected: " + value.source.where;
      break;
    case ValueSource::kPreset:
      return "default";
  }
  if (const auto* missing = config::missing_for(setting, value.text.value_or(""))) {
    return text + (missing->is_left_to_python ? "; not part of this build, for Python programs only"
                                              : "; not part of this build");
  }
  const Effect effect = config::effect_in(setting, settings);
  if (effect == Effect::kNone) text += "; no effect";
  if (effect == Effect::kForwarded) text += "; passed on, not used by native programs";
  return text;
}

}  // namespace

std::string explain_table(const config::Settings& settings, bool with_defaults) {
  std::vector<Row> rows;
  std::vector<Row> defaults;
  size_t name_width = 0;
  size_t value_width = 0;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (!setting->has_flag && !value.is_given()) continue;
    (is_set(value) ? rows : defaults)
        .push_back({std::string(setting->name), shown_value(*setting, value),
                    shown_source(*setting, settings)});
  }
  const size_t left_out = with_defaults ? 0 : defaults.size();
  if (with_defaults) rows.insert(rows.end(), defaults.begin(), defaults.end());
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    value_width = std::max(value_width, row.value.size());
  }
  const auto padded = [](const std::string& text, size_t width) {
    return text + std::string(std::max(width, text.size()) - text.size() + 2, ' ');
  };
  name_width = std::clamp<size_t>(name_width, 7, kWidestName);
  value_width = std::clamp<size_t>(value_width, 5, kWidestValue);
  std::string text = padded("SETTING", name_width) + padded("VALUE", value_width) + "FROM\n";
  for (const Row& row : rows) {
    text += padded(row.name, name_width) + padded(row.value, value_width) + row.source + "\n";
  }
  if (left_out > 0) {
    text += std::to_string(left_out) + " more have their defaults: --explain --all\n";
  }
  return text;
}

std::vector<SettingRow> setting_rows(const config::Settings& settings) {
  std::vector<SettingRow> rows;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings.of(*setting);
    // Settings of other libraries would bury the others.
    const bool is_shown = is_set(value) || setting->group < config::Group::kFsdp;
    if (!is_shown || (!setting->has_flag && !value.is_given())) continue;
    rows.push_back({std::string(setting->name), shown_value(*setting, value),
                    shown_source(*setting, settings), is_set(value)});
  }
  return rows;
}

std::vector<std::string> given_settings(const config::Settings& settings) {
  std::vector<std::string> lines;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (!value.text || value.source.kind == ValueSource::kPreset) continue;
    lines.push_back(std::string(setting->name) + ": " + shown_value(*setting, value) + " (" +
                    shown_source(*setting, settings) + ")");
  }
  return lines;
}

}  // namespace accelerate::cli
