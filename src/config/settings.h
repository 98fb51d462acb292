// Every setting of one run with its value and who gave it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_file.h"
#include "config/setting.h"
#include "config/value.h"

namespace accelerate::config {

struct SettingValue {
  std::optional<std::string> text{};  // nothing: nobody gave one, and it is decided at the start
  Source source{};

  // Somebody gave it: a flag, a variable or a file.
  bool is_given() const {
    return text && source.kind != ValueSource::kPreset && source.kind != ValueSource::kDetected;
  }
};

class Settings {
 public:
  Settings();

  // By name. A name that the schema does not have is a bug: throws std::logic_error.
  const SettingValue& operator[](std::string_view name) const;
  const SettingValue& of(const Setting& setting) const;
  void set(const Setting& setting, std::string text, Source source);

  bool is_on(std::string_view name) const;  // of switches and bools
  // Nothing where there is no value, and for a word such as auto.
  std::optional<int> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::string text(std::string_view name) const;  // "" if there is none

  // Keys of deepspeed_config that the file gave, and mixed_precision if it gave that too.
  std::vector<std::string> deepspeed_fields{};

 private:
  std::vector<SettingValue> values_;
};

struct FlagValue {
  const Setting* setting = nullptr;
  std::string text{};
  std::string flag{};  // as it was typed
};

struct SettingsInput {
  std::vector<FlagValue> flags{};  // the last one of a setting counts
  std::function<std::optional<std::string>(const std::string& name)> variable{};
  const ConfigFile* file = nullptr;  // nullptr: there is none
  int gpus = 0;                      // that workers could use
};

// Decides every setting: flag before variable before file before preset. Throws ConfigError for a
// wrong value, and where values contradict each other; it names who gave them.
Settings resolve_settings(const SettingsInput& input);

// Throws ConfigError if values contradict each other. Part of resolve_settings().
void check_together(const Settings& settings);

}  // namespace accelerate::config
