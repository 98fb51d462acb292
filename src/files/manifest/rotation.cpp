#include "files/manifest/rotation.h"

#include <algorithm>
#include <exception>

#include "accelerate/errors.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_names.h"

namespace accelerate::files {
namespace {

// The complete checkpoints of that series but for `newest`, oldest first.
std::vector<CheckpointEntry> older_ones(const std::filesystem::path& parent,
                                        const std::string& newest) {
  const auto series = series_name(newest);
  if (!series) return {};
  std::vector<CheckpointEntry> entries = list_checkpoints(parent);
  std::erase_if(entries, [&](const CheckpointEntry& entry) {
    const auto other = series_name(entry.name);
    return !entry.is_complete() || entry.name == newest || !other ||
           other->series != series->series;
  });
  return entries;
}

}  // namespace

RotationReport rotate(const std::filesystem::path& parent, const std::string& newest,
                      int64_t total_limit) {
  RotationReport report;
  const auto attempt = [&](auto step) {
    try {
      step();
      return true;
    } catch (const CheckpointError& error) {
      report.left_over.push_back(error.where() + ": " + error.message());
      return false;
    } catch (const std::exception& error) {  // no memory, or whatever the standard library throws
      report.left_over.push_back(parent.string() + ": " + error.what());
      return false;
    }
  };
  std::vector<CheckpointEntry> entries;
  if (!attempt([&] { entries = older_ones(parent, newest); })) return report;
  const auto stay = static_cast<size_t>(std::max<int64_t>(total_limit - 1, 0));
  if (entries.size() <= stay) return report;
  entries.resize(entries.size() - stay);

  std::vector<std::filesystem::path> hidden;
  for (const CheckpointEntry& entry : entries) {
    const auto path = parent / make_hidden_name(HiddenKind::kTemporary, entry.name);
    if (!attempt([&] { rename_entry(entry.directory, path); })) continue;
    hidden.push_back(path);
    report.removed.push_back(entry.name);
  }
  // No file goes before its checkpoint has vanished for good.
  if (!attempt([&] { sync_directory(parent); })) return report;
  for (const std::filesystem::path& path : hidden) {
    std::string error;
    if (!remove_tree(path, error)) report.left_over.push_back(error);
  }
  return report;
}

}  // namespace accelerate::files
