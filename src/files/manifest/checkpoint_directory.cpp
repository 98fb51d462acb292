#include "files/manifest/checkpoint_directory.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "accelerate/errors.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_names.h"
#include "files/manifest/manifest_file.h"

namespace accelerate::files {
namespace {

constexpr VerifyOptions kStructure{.data_checksums = false};

void inspect(CheckpointEntry& entry) {
  try {
    const UniqueFd opened = open_directory(entry.directory);
    entry.manifest = read_manifest(opened, entry.directory);
    const auto findings = verify_files(opened, entry.directory, *entry.manifest, kStructure);
    if (!findings.empty()) entry.problem = findings.front().text();
  } catch (const CheckpointError& error) {
    // Of the manifest it is known which file it is; another error names no file of the checkpoint.
    entry.problem =
        entry.manifest ? error.message() : std::string(kManifestName) + ": " + error.message();
  }
}

bool looks_like_checkpoint(const std::filesystem::path& path) {
  if (!leads_to_directory(path)) return false;
  const auto series = series_name(path.filename().string());
  return (series && series->series == kSeries) || can_be_seen(path / kManifestName);
}

CheckpointEntry make_entry(const std::string& name, const std::filesystem::path& directory) {
  CheckpointEntry entry{.name = name, .directory = directory};
  if (const auto series = series_name(name)) entry.number = series->number;
  return entry;
}

// The entries, not yet looked into.
std::vector<CheckpointEntry> find_entries(const std::filesystem::path& parent) {
  const std::vector<std::string> names = entry_names(parent);
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    const auto hidden = hidden_name(name);
    if (hidden) {
      // Set aside by a save that died before the new checkpoint took the name.
      if (hidden->kind == HiddenKind::kSetAside && leads_to_directory(parent / name) &&
          !leads_to_directory(parent / hidden->checkpoint)) {
        entries.push_back(make_entry(hidden->checkpoint, parent / name));
      }
    } else if (looks_like_checkpoint(parent / name)) {
      entries.push_back(make_entry(name, parent / name));
    }
  }
  const auto key = [](const CheckpointEntry& entry) {
    const auto series = series_name(entry.name);
    return std::tuple(!series, series ? series->series : entry.name, entry.number.value_or(0));
  };
  std::sort(entries.begin(), entries.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return entries;
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(const std::filesystem::path& directory)
    : path_(find_checkpoint(directory)) {
  const UniqueFd opened = open_directory(path_);
  manifest_ = read_manifest(opened, path_);
  const auto findings = verify_files(opened, path_, manifest_, kStructure);
  if (findings.empty()) return;
  throw CheckpointError({.what = "the checkpoint is not complete: " + findings.front().text(),
                         .where = (path_ / findings.front().file).string(),
                         .hint = "use another checkpoint"});
}

const FileRecord* CheckpointDirectory::find(std::string_view name) const {
  const auto found = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                  [&](const FileRecord& file) { return file.name == name; });
  return found == manifest_.files.end() ? nullptr : &*found;
}

std::filesystem::path CheckpointDirectory::file(std::string_view name) const {
  if (find(name) == nullptr) {
    throw CheckpointError({.what = "the checkpoint has no file " + std::string(name),
                           .where = path_.string(),
                           .hint = "accelerate checkpoint show lists its files"});
  }
  open_inside(open_directory(path_), std::string(name), path_);
  return path_ / name;
}

std::optional<CheckpointEntry> look_at_checkpoint(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  const std::filesystem::path found = where_checkpoint_is(path);
  if (found.empty() || (found == path && !looks_like_checkpoint(path))) return std::nullopt;
  CheckpointEntry entry = make_entry(name, found);
  inspect(entry);
  return entry;
}

std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& parent) {
  std::vector<CheckpointEntry> entries =
      find_entries(std::filesystem::absolute(parent).lexically_normal());
  for (CheckpointEntry& entry : entries) inspect(entry);
  return entries;
}

std::optional<CheckpointEntry> newest_complete(const std::filesystem::path& parent,
                                               const VerifyOptions& options) {
  if (entry_kind(parent) == EntryKind::kMissing) return std::nullopt;
  std::vector<CheckpointEntry> entries =
      find_entries(std::filesystem::absolute(parent).lexically_normal());
  std::erase_if(entries, [](const CheckpointEntry& entry) {
    const auto series = series_name(entry.name);
    return !series || series->series != kSeries;
  });
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    inspect(*entry);
    if (!entry->is_complete()) continue;
    if (!options.data_checksums || verify(entry->directory).empty()) return std::move(*entry);
  }
  return std::nullopt;
}

}  // namespace accelerate::files
