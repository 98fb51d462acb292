#include "core/requested_capabilities.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"

namespace accelerate {
namespace {

std::string not_in_this_build(const config::CapabilityRow& row) {
  return std::string(row.name) + " is not part of this build";
}

bool is_asked_by_variable(const config::CapabilityRow& row, const std::string& text) {
  const std::string name(row.variable);
  if (row.values.empty()) return parse_flag(name.c_str(), text);
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(row.values.begin(), row.values.end(), word) != row.values.end();
}

}  // namespace

void refuse_missing_capabilities(const EnvironmentLookup& lookup,
                                 const std::optional<MixedPrecision>& precision,
                                 std::span<const config::CapabilityRow> rows) {
  for (const config::CapabilityRow& row : rows) {
    if (row.is_in_this_build) continue;
    const bool is_precision = row.capability == config::Capability::kFp8;
    // The option counts before the variable.
    if (is_precision && precision) {
      if (*precision != MixedPrecision::kFp8) continue;
      throw UsageError({.what = not_in_this_build(row),
                        .where = "AcceleratorOptions::mixed_precision",
                        .hint = std::string(row.hint)});
    }
    const std::string name(row.variable);
    if (name.empty()) continue;
    const auto text = lookup(name.c_str());
    if (!text || text->empty() || !is_asked_by_variable(row, *text)) continue;
    throw ConfigError({.what = not_in_this_build(row),
                       .where = "environment variable " + name,
                       .hint = std::string(row.hint)});
  }
}

}  // namespace accelerate
