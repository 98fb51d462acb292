#include "cli/explain_table.h"

#include <algorithm>
#include <vector>

#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingValue;
using config::SourceKind;

struct Row {
  std::string name;
  std::string value;
  std::string source;
};

std::string shown_value(const Setting& setting, const SettingValue& value) {
  if (!value.text || value.text->empty()) return "-";
  return setting.is_secret ? "(secret)" : *value.text;
}

std::string shown_source(const Setting& setting, const SettingValue& value) {
  std::string text;
  switch (value.source.kind) {
    case SourceKind::kFlag:
    case SourceKind::kFile:
    case SourceKind::kVariable:
      text = value.source.where;
      break;
    case SourceKind::kDetected:
      text = "detected: " + value.source.where;
      break;
    case SourceKind::kPreset:
      return "default";
  }
  if (setting.effect == Effect::kNone) text += "; no effect";
  if (setting.effect == Effect::kForwarded) text += "; passed on, not used by native programs";
  return text;
}

}  // namespace

std::string explain_table(const config::Settings& settings) {
  std::vector<Row> rows;
  size_t name_width = 0;
  size_t value_width = 0;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (!setting->has_flag && !value.is_given()) continue;
    rows.push_back(
        {std::string(setting->name), shown_value(*setting, value), shown_source(*setting, value)});
    name_width = std::max(name_width, rows.back().name.size());
    value_width = std::max(value_width, rows.back().value.size());
  }
  const auto padded = [](const std::string& text, size_t width) {
    return text + std::string(width - text.size() + 2, ' ');
  };
  std::string text =
      padded("setting", name_width) + padded("value", std::max<size_t>(value_width, 5)) + "from\n";
  for (const Row& row : rows) {
    text += padded(row.name, name_width) + padded(row.value, std::max<size_t>(value_width, 5)) +
            row.source + "\n";
  }
  return text;
}

std::vector<std::string> given_settings(const config::Settings& settings) {
  std::vector<std::string> lines;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings.of(*setting);
    if (!value.text || value.source.kind == SourceKind::kPreset) continue;
    lines.push_back(std::string(setting->name) + ": " + shown_value(*setting, value) + " (" +
                    shown_source(*setting, value) + ")");
  }
  return lines;
}

}  // namespace accelerate::cli
