// Variables that ask a process for what this build lacks, read alike by the launcher and by the
// library. Nothing to link but base.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "config/capabilities.h"

namespace accelerate::config {

// "FSDP is not part of this build"
inline std::string missing_text(const CapabilityRow& row) {
  return std::string(row.name) + " is not part of this build";
}

// Whether the variable of `row` asks for it by `text`. Throws ConfigError for a word that is
// neither yes nor no where one of them is expected.
inline bool is_asked_by_variable(const CapabilityRow& row, const std::string& text) {
  if (text.empty()) return false;
  if (row.values.empty()) return parse_flag(std::string(row.variable).c_str(), text);
  const auto is_text = [&](std::string_view value) {
    return std::equal(
        value.begin(), value.end(), text.begin(), text.end(),
        [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  };
  return std::any_of(row.values.begin(), row.values.end(), is_text);
}

// Throws ConfigError if the variable of `row` asks for what this build lacks. Whoever chose the CPU
// (`on_cpu`) is not held to a variable that names TPUs.
inline void refuse_variable_of(const CapabilityRow& row, const VariableLookup& lookup,
                               bool on_cpu) {
  if (row.is_in_this_build || row.variable.empty()) return;
  if (on_cpu && row.capability == Capability::kTpu) return;
  const std::string name(row.variable);
  if (!is_asked_by_variable(row, lookup(name.c_str()).value_or(""))) return;
  throw ConfigError({.what = missing_text(row),
                     .where = "environment variable " + name,
                     .hint = std::string(row.hint)});
}

}  // namespace accelerate::config
