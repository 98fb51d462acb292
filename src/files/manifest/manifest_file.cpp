#include "files/manifest/manifest_file.h"

#include "accelerate/errors.h"
#include "files/manifest/checkpoint_names.h"

namespace accelerate::files {
namespace {

// The directory that was set aside while it was being replaced, or an empty path.
std::filesystem::path set_aside(const std::filesystem::path& directory) {
  const std::filesystem::path parent = directory.parent_path();
  if (!leads_to_directory(parent)) return {};
  for (const std::string& name : entry_names(parent)) {
    const auto hidden = hidden_name(name);
    if (hidden && hidden->kind == HiddenKind::kSetAside &&
        hidden->checkpoint == directory.filename() && leads_to_directory(parent / name)) {
      return parent / name;
    }
  }
  return {};
}

}  // namespace

std::filesystem::path where_checkpoint_is(const std::filesystem::path& path) {
  if (leads_to_directory(path)) return path;
  std::filesystem::path aside = set_aside(path);
  if (!aside.empty()) return aside;
  // The save that is under way may have ended between the two looks.
  return leads_to_directory(path) ? path : std::filesystem::path();
}

std::filesystem::path find_checkpoint(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::filesystem::path found = where_checkpoint_is(path);
  if (!found.empty()) return found;
  throw CheckpointError({.what = "there is no checkpoint",
                         .where = path.string(),
                         .hint = "accelerate checkpoint list shows those in a folder"});
}

Manifest read_manifest(const UniqueFd& directory, const std::filesystem::path& path) {
  const std::string name(kManifestName);
  const OpenedFile file = open_inside(directory, name, path);
  if (file.bytes > kMaxManifestBytes) {
    throw CheckpointError({.what = "the manifest is too large",
                           .where = (path / name).string(),
                           .hint = "use another checkpoint"});
  }
  std::string text(file.bytes, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text.data(), text.size()));
  text.resize(read_some(file.descriptor, bytes, path / name));
  return parse_manifest(text, path / name);
}

}  // namespace accelerate::files
