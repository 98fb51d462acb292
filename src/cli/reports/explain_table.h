// Tables of settings: who said what.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"

namespace accelerate::cli {

// What is set, group by group, with its value and the flag, variable or file:line that gave it, or
// what it was detected from; after it, `with_defaults`, all other settings with what they mean.
std::string explain_table(const config::Settings& settings, bool with_defaults);

// The same row by row: what is set, and what native programs could have set.
struct SettingRow {
  std::string name;
  std::string value;
  std::string source;
  bool is_given = false;  // by somebody, or detected
};
std::vector<SettingRow> setting_rows(const config::Settings& settings);

// "mixed_precision: bf16 (c.yaml:2)" for every setting that somebody gave or that was detected.
std::vector<std::string> given_settings(const config::Settings& settings);

}  // namespace accelerate::cli
