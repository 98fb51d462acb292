#include "config/capabilities.h"

#include <algorithm>
#include <cctype>

#include "accelerate/errors.h"
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

bool is_asked_for(const Settings& settings, const CapabilityRow& row) {
  if (row.values.empty()) return settings.is_on(row.setting);
  const std::string text = settings.text(row.setting);
  const bool is_named =
      std::any_of(row.values.begin(), row.values.end(),
                  [&](std::string_view value) { return is_same_word(value, text); });
  return is_named && !is_overruled(settings, row);
}

}  // namespace

const CapabilityRow* missing_capability(const Settings& settings, WorkerKind workers,
                                        std::span<const CapabilityRow> rows) {
  for (const CapabilityRow& row : rows) {
    if (row.is_in_this_build) continue;
    if (workers == WorkerKind::kPython && row.is_left_to_python) continue;
    if (is_asked_for(settings, row)) return &row;
  }
  return nullptr;
}

void refuse_missing_capability(const Settings& settings, WorkerKind workers,
                               std::span<const CapabilityRow> rows) {
  const CapabilityRow* row = missing_capability(settings, workers, rows);
  if (row == nullptr) return;
  const std::string name = row->name.empty()
                               ? std::string(row->setting) + " " + settings.text(row->setting)
                               : std::string(row->name);
  throw ConfigError({.what = name + " is not part of this build",
                     .where = place_of(settings[row->setting].source),
                     .hint = std::string(row->hint)});
}

}  // namespace accelerate::config
